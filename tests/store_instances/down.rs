//! A Redis that restarts, is away, or is wrong: carried tokens work, nothing recorded is lost, and
//! operators are told.

use std::process::Command;
use std::time::Duration;

use tidegate_lab::redis::{Kind, Options, Server};
use tidegate_lab::wait::{LIMIT, until};
use tidegate_proto::v1::store_changed::Kind as Befell;
use tidegate_proto::v1::token_store::Condition;
use tidegate_proto::v1::{Reason, Stored};

use super::stage::{ALICE, Instance, Stage, carrying, named, subject};

/// Expects that a session with this token is served as ever.
async fn carried_works(stage: &Stage, instance: &Instance, token: &str, id: i64) {
    let answer = instance.select(carrying(token)).await;
    assert!(!named(&answer).is_empty(), "it is served: {answer:?}");
    assert!([Reason::Covered, Reason::LeaderFallback, Reason::Waited].contains(&answer.reason()));
    stage.fresh(&answer, id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_restarts_is_announced_and_nothing_recorded_meanwhile_is_lost() {
    let stage = Stage::set().await;
    let redis = Server::start(Options::new(Kind::Redis)).await.expect("a server starts");
    let (a, b) = (stage.instance(&redis, "").await, stage.instance(&redis, "").await);
    for instance in [&a, &b] {
        instance.until_store(Condition::Well).await;
    }
    stage.hold().await;
    let before = a.record(subject(ALICE), stage.write(1).await).await;
    let (mut told_a, mut told_b) = (a.watch().await, b.watch().await);

    redis.kill().await.expect("it ends");
    // With a token and a subject: the record waits, and the token is carried.
    let during = a.record(subject(ALICE), stage.write(2).await).await;
    assert_eq!(during.stored(), Stored::Memory);
    told_a.until(Befell::Unreachable).await;
    let store = a.until_store(Condition::Unreachable).await;
    assert_eq!(store.pending_count, 1, "{store:?}");
    let alarms = a.alarms().await;
    assert!(alarms[0].starts_with("STORE_UNREACHABLE: "), "{alarms:?}");
    carried_works(&stage, &a, &before.token, 1).await;
    carried_works(&stage, &b, &during.token, 2).await;
    for instance in [&a, &b] {
        // Unknown, so everything acknowledged is demanded, which the leader alone has.
        let answer = instance.select(subject(ALICE)).await;
        assert_eq!(named(&answer), "l", "{answer:?}");
        stage.fresh(&answer, 2).await;
    }

    redis.start_again().await.expect("it starts");
    for told in [&mut told_a, &mut told_b] {
        told.until(Befell::Reachable).await;
    }
    for instance in [&a, &b] {
        instance.until_store(Condition::Well).await;
        let alarms = instance.alarms().await;
        assert!(alarms.iter().all(|alarm| !alarm.starts_with("STORE_")), "{alarms:?}");
    }
    until("what waited is written", LIMIT, || async { Ok(a.store().await.pending_count == 0) })
        .await
        .expect("it is written");
    let losses = [a.store().await.loss_count, b.store().await.loss_count];
    // The second to come back may find the barrier that the first has put up.
    assert!(losses.iter().any(|count| *count > 0), "all records were lost: {losses:?}");
    for instance in [&a, &b] {
        let answer = instance.select(subject(ALICE)).await;
        assert_eq!(named(&answer), "l", "the standby lacks it: {answer:?}");
        stage.fresh(&answer, 2).await;
    }
    stage.release().await;
    until("reads are back to normal", LIMIT, || async {
        let answer = b.select(subject(ALICE)).await;
        stage.fresh(&answer, 2).await;
        Ok(answer.reason() == Reason::Covered && named(&answer) != "l")
    })
    .await
    .expect("they are");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_redis_is_told_with_its_cause() {
    let stage = Stage::set().await;
    let redis = Server::start(Options::new(Kind::Redis)).await.expect("a server starts");
    let (a, b) = (stage.instance(&redis, "").await, stage.instance(&redis, "").await);
    for instance in [&a, &b] {
        instance.until_store(Condition::Well).await;
    }
    stage.hold().await;
    a.record(subject(ALICE), stage.write(1).await).await;
    let (mut told_a, mut told_b) = (a.watch().await, b.watch().await);
    redis.flush().await.expect("it is emptied");
    // The first to see it puts a barrier up at once: the other may see that alone.
    let cause = tokio::select! {
        cause = told_a.until(Befell::Lost) => cause,
        cause = told_b.until(Befell::Lost) => cause,
    };
    assert!(cause.contains("emptied"), "{cause}");
    for instance in [&a, &b] {
        instance.until_store(Condition::Well).await;
        let answer = instance.select(subject(ALICE)).await;
        assert_eq!(named(&answer), "l", "the standby lacks it: {answer:?}");
        stage.fresh(&answer, 1).await;
    }
    stage.release().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_without_its_redis_starts_and_recovers_by_itself() {
    let stage = Stage::set().await;
    let redis = Server::start(Options::new(Kind::Redis)).await.expect("a server starts");
    redis.stop().await.expect("it ends");
    let a = stage.instance(&redis, "").await;
    let mut told = a.watch().await;
    let store = a.store().await;
    assert_eq!(store.condition(), Condition::Unreachable, "{store:?}");
    assert!(store.problem.contains("cannot be reached"), "{store:?}");
    let alarms = a.alarms().await;
    assert!(alarms[0].starts_with("STORE_UNREACHABLE: "), "{alarms:?}");
    stage.hold().await;
    let recorded = a.record(subject(ALICE), stage.write(1).await).await;
    assert_eq!(recorded.stored(), Stored::Memory);
    carried_works(&stage, &a, &recorded.token, 1).await;
    let answer = a.select(subject("bob@example.com")).await;
    assert_eq!(named(&answer), "l", "who is unknown is served what is acknowledged: {answer:?}");
    stage.fresh(&answer, 1).await;

    redis.start_again().await.expect("it starts");
    told.until(Befell::Reachable).await;
    a.until_store(Condition::Well).await;
    until("what waited is written", LIMIT, || async { Ok(a.store().await.pending_count == 0) })
        .await
        .expect("it is written");
    let records = redis.keys("tidegate:*:r:*").await.expect("it answers");
    assert!(!records.is_empty(), "her record was written");
    let b = stage.instance(&redis, "").await;
    b.until_store(Condition::Well).await;
    let answer = b.select(subject(ALICE)).await;
    assert_eq!(named(&answer), "l", "the standby lacks it: {answer:?}");
    stage.fresh(&answer, 1).await;
    stage.release().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_comes_up_wrong_is_an_alarm_until_it_is_put_right() {
    let stage = Stage::set().await;
    let options = Options::new(Kind::Redis).max_memory(50_000_000, "allkeys-lru");
    let redis = Server::start(options).await.expect("a server starts");
    redis.stop().await.expect("it ends");
    let a = stage.instance(&redis, "").await;
    let mut told = a.watch().await;
    redis.start_again().await.expect("it starts");
    let cause = told.until(Befell::Unfit).await;
    assert!(cause.contains("`maxmemory-policy`"), "{cause}");
    a.until_store(Condition::Unfit).await;
    assert!(a.alarms().await[0].starts_with("STORE_UNFIT: "));
    redis.set("maxmemory-policy", "noeviction").await.expect("it is put right");
    a.until_store(Condition::Well).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_comes_back_wrong_is_an_alarm_until_it_is_put_right() {
    let stage = Stage::set().await;
    let redis = Server::start(Options::new(Kind::Redis)).await.expect("a server starts");
    let a = stage.instance(&redis, "").await;
    a.until_store(Condition::Well).await;
    let mut told = a.watch().await;
    redis.set("maxmemory-policy", "allkeys-lru").await.expect("it is set");
    redis.tell(&["CONFIG", "REWRITE"]).await.expect("it is kept");
    redis.stop().await.expect("it ends");
    told.until(Befell::Unreachable).await;
    redis.start_again().await.expect("it starts");
    let cause = told.until(Befell::Unfit).await;
    assert!(cause.contains("`maxmemory-policy` is allkeys-lru"), "{cause}");
    a.until_store(Condition::Unfit).await;
    let alarms = a.alarms().await;
    assert!(alarms[0].starts_with("STORE_UNFIT: "), "{alarms:?}");
    assert!(alarms[0].contains("set it to noeviction"), "{alarms:?}");
    redis.set("maxmemory-policy", "noeviction").await.expect("it is put right");
    told.until(Befell::Reachable).await;
    a.until_store(Condition::Well).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_redis_is_refused_at_the_start_in_one_line() {
    let stage = Stage::set().await;
    let options = Options::new(Kind::Redis).max_memory(50_000_000, "volatile-lru");
    let redis = Server::start(options).await.expect("a server starts");
    let state = tempfile::tempdir().expect("a folder");
    let text = stage.options(&redis, "").await.toml(state.path()).expect("a configuration");
    let file = stage.file("tidegate.toml");
    std::fs::write(&file, text).expect("written");
    let program = env!("CARGO_BIN_EXE_tidegate");
    let serve = move || Command::new(program).arg("serve").arg("--config").arg(file).output();
    let output = tokio::time::timeout(Duration::from_secs(60), tokio::task::spawn_blocking(serve));
    let output = output.await.expect("it ends").expect("it runs").expect("it is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    let [error] = errors.as_slice() else { panic!("one error: {said}") };
    let expected = format!(
        "error: `store.urls`: the store at redis://{}: its `maxmemory-policy` is volatile-lru, \
         which drops records; set it to noeviction",
        redis.address()
    );
    assert_eq!(*error, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_with_another_secret_is_refused() {
    let stage = Stage::set().await;
    let redis = Server::start(Options::new(Kind::Redis)).await.expect("a server starts");
    let a = stage.instance(&redis, "").await;
    a.until_store(Condition::Well).await;
    let another = async || {
        let options = stage.options(&redis, "").await;
        let (own, other) = (stage.file("secret"), stage.file("token"));
        let text = options.toml(&stage.file("")).expect("a configuration");
        let text = text.replace(&*own.to_string_lossy(), &other.to_string_lossy());
        let config = tidegate::config::Config::parse("t.toml", &text, []).expect("it is fine");
        let started = tidegate::server::start(config, tidegate_core::guards::Guards::on()).await;
        started.err().map(|error| error.to_string())
    };
    for flushed in [false, true] {
        if flushed {
            let mut told = a.watch().await;
            redis.flush().await.expect("it is emptied");
            told.until(Befell::Stands).await;
        }
        let refused = another().await.expect("it must not start");
        assert!(refused.starts_with("`store.secret_file`: other instances of `lab`"), "{refused}");
        assert!(refused.contains("remove `tidegate:{*}:lab:*`"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_sees_the_store() {
    let stage = Stage::set().await;
    let redis = Server::start(Options::new(Kind::Redis)).await.expect("a server starts");
    let a = stage.instance(&redis, "").await;
    a.until_store(Condition::Well).await;
    let admin = a.service.admin_endpoint();
    let shown = async |more: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("store").args(["--admin", &admin]).args(more).kill_on_drop(true);
        let output = command.output().await.expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, text) = shown(&[]).await;
    let place = format!("store       redis at redis://{}\n", redis.address());
    assert!(code == Some(0) && text.starts_with(&place), "{text}");
    assert!(text.contains("redundancy single\n") && text.contains("state       is well\n"));
    redis.stop().await.expect("it ends");
    a.until_store(Condition::Unreachable).await;
    let (code, text) = shown(&["--json"]).await;
    assert_eq!(code, Some(1), "{text}");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["condition"], "unreachable", "{json}");
}
