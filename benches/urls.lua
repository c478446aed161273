-- Load of the comparisons with nginx: requests the issues 1 to 1,000 of one repository in turn,
-- with a client's key; with a PREFIX, each request has a query that no other has. At the end it
-- prints the line of JSON that beside_nginx.py parses.
--
-- wrk -s urls.lua URL -- KEY [PREFIX]

local COUNT = 1000
local requests = {}
local at = 0
local headers, prefix

function init(args)
  prefix = args[2]
  headers = { Authorization = "Bearer " .. args[1], Accept = "application/vnd.github+json" }
  for number = 1, COUNT do
    requests[number] = wrk.format("GET", "/repos/acme/widgets/issues/" .. number, headers)
  end
end

function request()
  at = at + 1
  local number = at % COUNT + 1
  if prefix then
    local path = "/repos/acme/widgets/issues/" .. number .. "?since=" .. prefix .. at
    return wrk.format("GET", path, headers)
  end
  return requests[number]
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format(
    'RESULT {"requests": %d, "microseconds": %d, "p50_us": %d, "p99_us": %d, "failed": %d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), failed
  ))
end
