//! The scripts of the queue that all replicas share. Each of them is one atomic step.
//!
//! All keys have the same hash tag, so that they are in one slot of a cluster. `ARGV[1]` is their
//! beginning, and `ARGV[2]` the replica that asks. A place in a lane is `REPLICA:NUMBER`. Numbers
//! are 16 hex digits. The age of all data is the time of their begin, and the microseconds since
//! then, where the server's clock is asked.
//!
//! A server without memory refuses the first change of a script, unless it is one that needs none,
//! such as `DEL`; it takes the others then. So all scripts begin with one, apart from that which
//! adds a write.

/// Returns the text of a script: what all of them need, then its own part.
macro_rules! script {
    ($own:literal) => {
        concat!(
            r"
local base, me = ARGV[1], ARGV[2]
local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
local function alive(ms)
  redis.call('DEL', base .. 'none')
  redis.call('SET', base .. 'alive:' .. me, 1, 'PX', ms)
  redis.call('SADD', base .. 'owners', me)
  redis.call('SET', base .. 'born', string.format('%.0f', now_us()), 'NX')
  local born = redis.call('GET', base .. 'born')
  return born .. ' ' .. string.format('%.0f', now_us() - born)
end
local function join(lane, number, place)
  if lane == '' then return '0' end
  local last = tonumber(redis.call('GET', base .. 'places') or '0')
  local at = tonumber(place or math.max(last + 1, now_us()))
  place = string.format('%.0f', at)
  if at > last then redis.call('SET', base .. 'places', place) end
  redis.call('ZADD', base .. 'lane:' .. lane, place, me .. ':' .. number)
  return place
end
local function place_of(owner, lane, number)
  return redis.call('ZSCORE', base .. 'lane:' .. lane, owner .. ':' .. number) or '0'
end
local function head(lane)
  if lane == '' then return '' end
  local key = base .. 'lane:' .. lane
  while true do
    local first = redis.call('ZRANGE', key, 0, 0)[1]
    if not first then return '' end
    local owner, number = string.sub(first, 1, 16), string.sub(first, 18)
    if redis.call('EXISTS', base .. 'alive:' .. owner) == 1
      or redis.call('EXISTS', base .. 'write:' .. number) == 1 then return first end
    redis.call('ZREM', key, first)
  end
end
local function leave(owner, lane, number)
  if lane == '' then return '' end
  redis.call('ZREM', base .. 'lane:' .. lane, owner .. ':' .. number)
  return head(lane)
end
local function finish(owner, number, lane, key, keep_ms)
  redis.call('SREM', base .. 'of:' .. owner, number)
  redis.call('PEXPIRE', base .. 'write:' .. number, keep_ms)
  if key ~= '' then redis.call('PEXPIRE', base .. 'key:' .. key, keep_ms) end
  return leave(owner, lane, number)
end
",
            $own
        )
    };
}

/// Reserves a range of numbers, and returns its place among all ranges: the time in steps of 64 ms,
/// or one more than the last. `KEYS[1]` has the last one. After a loss of all data the time keeps
/// the ranges of running replicas apart from new ones.
pub const RESERVE: &str = r"
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000 + math.floor(time[2] / 1000)) / 64)
local last = tonumber(redis.call('GET', KEYS[1]) or '0')
if now <= last then now = last + 1 end
redis.call('PERSIST', KEYS[1])
redis.call('SET', KEYS[1], string.format('%.0f', now))
return now";

/// Adds a write: its number, request, progress, state, lane, key, the key's meaning, lease, and the
/// progress of its first attempt if that may begin with its turn, and the microseconds after a loss
/// of all data in which nobody has a turn. Returns a word, the head of the lane or what the key
/// stands for, its place, and the age of all data.
pub const INSERT: &str = script!(
    r"
local number, lane, key = ARGV[3], ARGV[7], ARGV[8]
local write = base .. 'write:' .. number
if redis.call('EXISTS', base .. 'gone:' .. number) == 1 then return {'gone', '', '0', ''} end
redis.call('SET', base .. 'places', redis.call('GET', base .. 'places') or '0')
local born = alive(ARGV[10])
local there = redis.call('HMGET', write, 'owner', 'request', 'state')
if there[1] == me or there[2] == ARGV[4] then
  local is_ahead = there[1] == me and there[3] == 'sending'
  return {is_ahead and 'ahead' or 'kept', head(lane), place_of(me, lane, number), born}
end
if there[1] then return {'taken', '', '0', born} end
if key ~= '' then
  local held = redis.call('GET', base .. 'key:' .. key)
  local other = base .. 'write:' .. string.sub(held or '', 1, 16)
  if held and redis.call('EXISTS', other) == 1 then
    if string.sub(held, 17) == ARGV[9] then redis.call('HSET', other, 'joined', 1) end
    return {'keyed', held, '0', born}
  end
  redis.call('SET', base .. 'key:' .. key, number .. ARGV[9])
end
local place = join(lane, number)
local first = head(lane)
local is_ahead = ARGV[11] ~= '' and first == me .. ':' .. number
  and tonumber(string.match(born, '%-?%d+$')) > tonumber(ARGV[12])
redis.call('HSET', write, 'request', ARGV[4], 'progress', is_ahead and ARGV[11] or ARGV[5],
  'state', is_ahead and 'sending' or ARGV[6], 'owner', me, 'lane', lane, 'key', key,
  'changes', is_ahead and 1 or 0)
redis.call('SADD', base .. 'of:' .. me, number)
return {is_ahead and 'ahead' or 'kept', first, place, born}"
);

/// Adds an own write again that is lost: its number, request, progress, state, lane, key, the key's
/// meaning, lease, changes, place, the time to keep a final one or nothing. A write that came later
/// for the same key goes, if it is still queued. Returns a word and the head of the lane.
pub const ADD_AGAIN: &str = script!(
    r"
local number, lane, key, final_ms = ARGV[3], ARGV[7], ARGV[8], ARGV[13]
local write = base .. 'write:' .. number
alive(ARGV[10])
local there = redis.call('HMGET', write, 'owner', 'changes')
if there[1] and there[1] ~= me then return {'elsewhere', ''} end
if there[1] and tonumber(there[2]) >= tonumber(ARGV[11]) then return {'kept', head(lane)} end
if key ~= '' then
  local held = redis.call('GET', base .. 'key:' .. key)
  local other = string.sub(held or '', 1, 16)
  there = redis.call('HMGET', base .. 'write:' .. other, 'owner', 'state', 'lane')
  if there[1] and other ~= number then
    local place = tonumber(place_of(there[1], there[3], other))
    if there[2] ~= 'queued' or place < tonumber(ARGV[12]) then return {'elsewhere', ''} end
    redis.call('DEL', base .. 'write:' .. other)
    redis.call('SREM', base .. 'of:' .. there[1], other)
    leave(there[1], there[3], other)
  end
  redis.call('SET', base .. 'key:' .. key, number .. ARGV[9])
end
redis.call('HSET', write, 'request', ARGV[4], 'progress', ARGV[5], 'state', ARGV[6],
  'owner', me, 'lane', lane, 'key', key, 'changes', ARGV[11])
if final_ms ~= '' then
  redis.call('HSET', write, 'final', '1')
  return {'kept', finish(me, number, lane, key, final_ms)}
end
redis.call('HSET', write, 'final', '0')
redis.call('PERSIST', write)
redis.call('SADD', base .. 'of:' .. me, number)
join(lane, number, ARGV[12] ~= '0' and ARGV[12])
return {'kept', head(lane)}"
);

/// Takes a place without a write: its number, lane, lease, and the place that it had, or nothing.
/// Returns the head of the lane, the place, and the age of all data.
pub const ENTER: &str = script!(
    r"
local number, lane = ARGV[3], ARGV[4]
local born = alive(ARGV[5])
if not redis.call('ZSCORE', base .. 'lane:' .. lane, me .. ':' .. number) then
  join(lane, number, ARGV[6] ~= '0' and ARGV[6])
end
return {head(lane), place_of(me, lane, number), born}"
);

/// Leaves a place without a write: its number, lane. Returns the head of the lane.
pub const LEAVE: &str = script!("return leave(me, ARGV[4], ARGV[3])");

/// Changes the progress of an own write: its number, the number of the change, progress, state,
/// `final` or not, the time to keep a final one, and `again` if a final one goes on.
pub const PROGRESS: &str = script!(
    r"
local number, write = ARGV[3], base .. 'write:' .. ARGV[3]
redis.call('DEL', base .. 'none')
local held = redis.call('HMGET', write, 'owner', 'changes', 'final', 'lane', 'key', 'state')
if not held[1] then return {'gone', ''} end
if held[1] ~= me then return {'elsewhere', ''} end
local was_final = held[3] == '1'
if was_final and ARGV[9] == '' then
  return {held[6] == ARGV[6] and 'kept' or 'elsewhere', ''}
end
if tonumber(held[2]) >= tonumber(ARGV[4]) then return {'kept', ''} end
local final = ARGV[7] ~= '' and '1' or '0'
redis.call('HSET', write, 'changes', ARGV[4], 'progress', ARGV[5], 'state', ARGV[6], 'final', final)
if final == '1' then return {'kept', finish(me, number, held[4], held[5], ARGV[8])} end
if was_final then
  redis.call('PERSIST', write)
  if held[5] ~= '' then redis.call('PERSIST', base .. 'key:' .. held[5]) end
  redis.call('SADD', base .. 'of:' .. me, number)
  join(held[4], number)
  return {'kept', head(held[4])}
end
return {'kept', ''}"
);

/// Ends a write of any replica that is still queued: its number, the change that was seen, the
/// progress, its state, the time to keep it.
pub const CANCEL: &str = script!(
    r"
local number, write = ARGV[3], base .. 'write:' .. ARGV[3]
redis.call('DEL', base .. 'none')
local held = redis.call('HMGET', write, 'owner', 'changes', 'state', 'lane', 'key')
if held[3] ~= 'queued' or held[2] ~= ARGV[4] then return {'elsewhere', ''} end
redis.call('HSET', write, 'changes', held[2] + 1, 'progress', ARGV[5], 'state', ARGV[6], 'final', '1')
return {'kept', finish(held[1], number, held[4], held[5], ARGV[7])}"
);

/// Takes a write that has ended from the replica that had it: its number.
pub const TAKE: &str = script!(
    r"
local write = base .. 'write:' .. ARGV[3]
redis.call('DEL', base .. 'none')
if redis.call('HGET', write, 'final') ~= '1' then return 0 end
redis.call('HSET', write, 'owner', me)
return 1"
);

/// Removes an own write, also one that comes later: its number. One that another replica has
/// promised to a client stays.
pub const REMOVE: &str = script!(
    r"
local number, write = ARGV[3], base .. 'write:' .. ARGV[3]
local held = redis.call('HMGET', write, 'owner', 'lane', 'key', 'joined')
redis.call('DEL', base .. 'none')
if not held[1] then
  redis.call('SET', base .. 'gone:' .. number, 1, 'EX', 3600)
  return {'removed', ''}
end
if held[1] ~= me then return {'removed', ''} end
if held[4] then return {'kept', ''} end
redis.call('DEL', write)
redis.call('SREM', base .. 'of:' .. me, number)
if held[3] ~= '' then
  local key = base .. 'key:' .. held[3]
  if string.sub(redis.call('GET', key) or '', 1, 16) == number then redis.call('DEL', key) end
end
return {'removed', leave(me, held[2], number)}"
);

/// Renews the lease, of this length. Returns the age of all data, and the replicas without a lease
/// that may have writes, each with 1 if it has left by itself.
pub const RENEW: &str = script!(
    r"
local born = alive(ARGV[3])
local gone = {}
for _, owner in ipairs(redis.call('SMEMBERS', base .. 'owners')) do
  if redis.call('EXISTS', base .. 'alive:' .. owner) == 0 then
    gone[#gone + 1] = {owner, redis.call('SISMEMBER', base .. 'left', owner)}
  end
end
return {born, gone}"
);

/// Returns the memory in use, its limit, and the memory of the machine, in bytes.
pub const MEMORY: &str = r"
local info = redis.call('INFO', 'memory')
local function figure(name) return string.match(info, name .. ':(%d+)') or '0' end
return {figure('\nused_memory'), figure('\nmaxmemory'), figure('\ntotal_system_memory')}";

/// Returns the number of a write of a replica: its id.
pub const ONE: &str = script!("return redis.call('SRANDMEMBER', base .. 'of:' .. ARGV[3])");

/// Takes writes of a replica that is gone: its id, the most. Returns number, lane and changes of
/// each.
pub const ADOPT: &str = script!(
    r"
local owner, taken = ARGV[3], {}
redis.call('DEL', base .. 'none')
if redis.call('EXISTS', base .. 'alive:' .. owner) == 1 then return taken end
local of = base .. 'of:' .. owner
for _, number in ipairs(redis.call('SRANDMEMBER', of, ARGV[4])) do
  local write = base .. 'write:' .. number
  local held = redis.call('HMGET', write, 'lane', 'changes', 'owner')
  redis.call('SREM', of, number)
  if held[3] == owner then
    redis.call('HSET', write, 'owner', me)
    redis.call('SADD', base .. 'of:' .. me, number)
    local lane = base .. 'lane:' .. held[1]
    local place = redis.call('ZSCORE', lane, owner .. ':' .. number)
    if place then
      redis.call('ZREM', lane, owner .. ':' .. number)
      redis.call('ZADD', lane, place, me .. ':' .. number)
    end
    taken[#taken + 1] = {number, held[1], held[2]}
  end
end
if redis.call('EXISTS', of) == 0 then
  redis.call('SREM', base .. 'owners', owner)
  redis.call('SREM', base .. 'left', owner)
end
return taken"
);

/// Returns the heads of lanes, which are the further arguments.
pub const HEADS: &str = script!(
    r"
local heads = {}
for place = 3, #ARGV do heads[#heads + 1] = head(ARGV[place]) end
return heads"
);

/// Returns which of these writes this replica does not have any more, each with 1 if another has
/// it, or has cancelled it.
pub const LOST: &str = script!(
    r"
local lost = {}
for place = 3, #ARGV do
  local held = redis.call('HMGET', base .. 'write:' .. ARGV[place], 'owner', 'state')
  if held[1] ~= me or held[2] == 'cancelled' then
    lost[#lost + 1] = {ARGV[place], redis.call('EXISTS', base .. 'write:' .. ARGV[place])}
  end
end
return lost"
);

/// Returns the numbers of all writes of this replica that have not ended.
pub const MINE: &str = script!("return redis.call('SMEMBERS', base .. 'of:' .. me)");

/// Ends the lease, so that the others take what is left.
pub const END: &str = script!(
    r"
redis.call('DEL', base .. 'none')
redis.call('SADD', base .. 'left', me)
return redis.call('DEL', base .. 'alive:' .. me)"
);

/// Returns request and progress of a write, 1 if a client of another replica was promised it, its
/// key, the key's meaning, its place, and the age of all data: its number.
pub const LOAD: &str = script!(
    r"
local number = ARGV[3]
local held = redis.call('HMGET', base .. 'write:' .. number,
  'request', 'progress', 'joined', 'key', 'owner', 'lane')
local born = redis.call('GET', base .. 'born') or ''
if not held[1] then return {false, false, false, '', '', '0', born} end
local meaning = string.sub(redis.call('GET', base .. 'key:' .. held[4]) or '', 17)
return {held[1], held[2], held[3], held[4], meaning,
  place_of(held[5], held[6], number), born}"
);

/// Returns progress, changes and lane of a write: its number.
pub const LOOK: &str = script!(
    r"return redis.call('HMGET', base .. 'write:' .. ARGV[3], 'progress', 'changes', 'lane')"
);
