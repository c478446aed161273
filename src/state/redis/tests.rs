//! Redis alone: faults of the server, and servers that will not do.

use super::*;
use crate::config::Durability;
use crate::state::conformance::settings;
use crate::state::redis_server::RedisServer;

#[tokio::test]
async fn a_server_that_evicts_state_is_refused() {
    let server = RedisServer::start(&["--maxmemory-policy", "allkeys-lru"]);
    let fault = RedisHome::examine(&settings(&server, "evicts")).await.unwrap_err();
    assert_eq!(
        fault.to_string(),
        "maxmemory-policy is \"allkeys-lru\", which removes shared state when memory runs out: set \"noeviction\" or \"volatile-lru\""
    );
    let server = RedisServer::start(&["--maxmemory-policy", "volatile-lru"]);
    RedisHome::examine(&settings(&server, "keeps")).await.unwrap();
}

#[tokio::test]
async fn eviction_is_seen_without_a_right_to_the_settings() {
    let server = RedisServer::start(&["--maxmemory-policy", "allkeys-lru"]);
    server.run("ACL SETUSER default resetkeys ~evicts:* &evicts:* -@dangerous +info");
    let fault = RedisHome::examine(&settings(&server, "evicts")).await.unwrap_err();
    assert!(fault.to_string().contains("allkeys-lru"), "{fault}");
}

#[tokio::test]
async fn a_thing_that_is_kept_late_is_as_old_as_it_is() {
    let server = RedisServer::start(&[]);
    let home = RedisHome::begin(&settings(&server, "late"));
    home.connected().await;
    // The clock is known from the last look, and the command comes seconds later.
    let minute = Duration::from_mins(1);
    home.keep("first", Bytes::new(), timer_now(), minute).await.unwrap();
    let made_at = timer_now();
    server.freeze();
    let late = home.keep("late", Bytes::new(), made_at, minute).await;
    assert!(late.is_err(), "the answer comes after the time for it");
    while timer_now() - made_at < Duration::from_millis(300) {
        tokio::task::yield_now().await;
    }
    server.thaw();
    loop {
        // The connection is opened anew.
        match home.find_or_claim("late", "another", minute, minute).await {
            Ok(Found::Kept(_, age)) => {
                assert!(age >= Duration::from_millis(300), "{age:?}");
                return;
            }
            _ => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test]
async fn a_user_without_a_right_to_the_messages_is_refused() {
    let server = RedisServer::start(&[]);
    server.run("ACL SETUSER default resetchannels");
    let settings = settings(&server, "muted");
    let fault = RedisHome::examine(&settings).await.unwrap_err().to_string();
    assert!(fault.contains("the channel of messages muted:messages"), "{fault}");
    assert!(fault.contains("~muted:* for keys and &muted:* for channels"), "{fault}");
    server.run("ACL SETUSER default resetkeys ~muted:* &muted:* -@dangerous +info");
    RedisHome::examine(&settings).await.unwrap();
}

#[tokio::test]
async fn a_user_without_a_right_to_the_keys_is_refused() {
    let server = RedisServer::start(&[]);
    let settings = settings(&server, "barred");
    for rights in ["resetkeys ~other:*", "allkeys -eval", "+eval -persist"] {
        server.run(&format!("ACL SETUSER default {rights}"));
        let fault = RedisHome::examine(&settings).await.unwrap_err();
        assert!(matches!(fault, Examined::Unsuitable(Unsuitable::Forbidden { .. })), "{fault}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_changes_is_away() {
    let server = RedisServer::start(&["--min-replicas-to-write", "1"]);
    let fault = RedisHome::examine(&settings(&server, "refuses")).await.unwrap_err();
    assert!(matches!(fault, Examined::Away(_)), "{fault}");
    assert!(fault.to_string().contains("NOREPLICAS"), "{fault}");
}

#[tokio::test]
async fn a_server_that_fails_all_operations_is_asked_less_and_less() {
    let server = RedisServer::start(&[]);
    let home = RedisHome::begin(&settings(&server, "fails"));
    home.connected().await;
    // It passes the check of a new connection.
    server.run("ACL SETUSER default -get");
    let begun = timer_now();
    while timer_now() - begun < Duration::from_secs(2) {
        let _ = home.record("any").await;
        tokio::task::yield_now().await;
    }
    let opened = server.info("total_connections_received").parse::<u32>().unwrap();
    assert!(opened < 30, "{opened} connections in two seconds");
}

#[tokio::test]
async fn a_read_only_replica_of_redis_is_no_home() {
    let server = RedisServer::start(&["--replicaof", "127.0.0.1 1"]);
    let fault = RedisHome::examine(&settings(&server, "replica")).await.unwrap_err();
    assert_eq!(fault.to_string(), "the server is a read-only replica of another");
}

#[tokio::test]
async fn a_server_that_may_forget_keeps_no_writes() {
    let server = RedisServer::start(&["--appendonly", "yes"]);
    let mut settings = settings(&server, "forgets");
    RedisHome::examine(&settings).await.unwrap();
    settings.writes = Some(Durability::Always);
    let fault = RedisHome::examine(&settings).await.unwrap_err();
    assert_eq!(
        fault.to_string(),
        "appendfsync is \"everysec\": writes.store = \"redis\" needs appendonly yes and appendfsync always, unless writes.durability is \"best-effort\""
    );
    assert_eq!(server.run("CONFIG SET appendfsync always"), "+OK");
    RedisHome::examine(&settings).await.unwrap();
    assert_eq!(server.run("CONFIG SET maxmemory-policy volatile-lru"), "+OK");
    let fault = RedisHome::examine(&settings).await.unwrap_err();
    assert!(fault.to_string().contains("needs \"noeviction\""), "{fault}");
}

#[tokio::test]
async fn a_wrong_password_is_said() {
    let server = RedisServer::start(&["--requirepass", "right"]);
    let fault = RedisHome::examine(&settings(&server, "password")).await.unwrap_err();
    assert!(fault.to_string().contains("Authentication required"), "{fault}");
}

#[tokio::test]
async fn the_time_of_its_clock_is_known_from_the_start() {
    let server = RedisServer::start(&[]);
    let before = crate::clock::Clock::system().now();
    let its_time = RedisHome::examine(&settings(&server, "clock")).await.unwrap();
    let after = crate::clock::Clock::system().now();
    assert!((before..=after).contains(&its_time), "{its_time:?}");
}

#[tokio::test]
async fn the_connection_for_long_commands_is_opened_once() {
    let server = RedisServer::start(&[]);
    for at in 0..20 {
        let settings = settings(&server, &format!("once-{at}"));
        let first = Connection::begin(&settings);
        let second = Connection::begin_second(&settings, &first);
        for _ in 0..3 {
            let pong: String = second.run_long(Duration::from_secs(1), &cmd("PING")).await.unwrap();
            assert_eq!(pong, "PONG");
            assert_eq!(second.opened_after(0).await, Some(1));
        }
    }
}
