//! Tokens that come in, and the token that goes out.

use super::*;

fn sealed_by_another_key(key: &Key, token: &SessionToken) -> String {
    let others = std::iter::repeat_with(|| Key::generate().expect("random"));
    let other = others.take(1000).find(|other| other.id() != key.id()).expect("not all alike");
    ring(&other).seal(&token.encode(7))
}

#[tokio::test]
async fn what_is_no_token_of_ours_is_refused_with_what_to_do() {
    let world = world();
    let good = world.sealed(&wrote(KEY1, 9));
    let elsewhere = Keyring::of_one("d", "default", world.key.clone(), CHARS);
    let broken = ring(&world.key).seal(&[1, 9]);
    let many = |count| vec![good.clone(); count];
    let long = format!("tg1.{}", "A".repeat(CHARS));
    let table: [(&str, Vec<String>, &str); 8] = [
        ("malformed", vec!["tg1.x".to_owned()], "drop it"),
        ("malformed", vec![String::new()], "drop it"),
        ("malformed", vec![good.clone(), good.to_uppercase()], "drop it"),
        ("malformed", vec![broken], "drop the token"),
        ("foreign", vec![elsewhere.seal(&[])], "[cluster]"),
        ("too large", vec![long.clone()], "at most 8192"),
        ("too many", many(17), "at most 16"),
        ("too long", [many(12), vec![long[..CHARS].to_owned(); 4]].concat(), "at most 32768"),
    ];
    for (what, tokens, advice) in table {
        let error = world.asks("", &tokens).await.expect_err(what);
        let fits = match &error {
            SessionError::TokenMalformed(_) => what == "malformed",
            SessionError::TokenForeign(_) => what == "foreign",
            SessionError::TokenTooLarge(_) => what == "too large",
            SessionError::TooManyTokens { .. } => what == "too many",
            SessionError::TokensTooLong { .. } => what == "too long",
            SessionError::SubjectTooLong { .. }
            | SessionError::TokenRoom { .. }
            | SessionError::Store(_) => false,
        };
        assert!(fits && error.to_string().contains(advice), "{what}: {error}");
        assert!(!error.to_string().contains(&good), "the error shows a token");
    }
}

#[tokio::test]
async fn a_subject_that_is_too_long_and_room_for_no_token_are_refused() {
    let world = world();
    assert!(world.asks(&"é".repeat(128), &[]).await.is_ok());
    let error = world.asks(&"é".repeat(129), &[]).await.expect_err("258 bytes");
    assert_eq!(error, SessionError::SubjectTooLong { bytes: 258, limit_bytes: 256 });
    for (chars, fine) in [(1, false), (58, false), (59, true), (1 << 40, true)] {
        let asked = Asked { subject: "", tokens: &[], max_token_chars: chars };
        assert_eq!(world.sessions.identify(asked).await.is_ok(), fine, "{chars}");
    }
}

#[tokio::test]
async fn sixteen_racing_tokens_lose_nothing() {
    let world = world();
    let parts: Vec<SessionToken> = (1..=16_u64)
        .map(|n| {
            let key = if n % 2 == 0 { KEY1 } else { KEY2 };
            let timeline = u32::try_from(n % 4).expect("small") + 1;
            let mut part = marked(key, timeline, Mark::saw(lsn(n * 7 % 16)));
            if n % 5 == 0 {
                part.tell(Notice { told_seconds: n, ..lost_in(P1) });
            }
            part
        })
        .collect();
    let tokens: Vec<String> = parts.iter().map(|part| world.sealed(part)).collect();
    let holder = world.holder("", &tokens).await;
    assert_eq!(holder.merged(), &joined(&parts));
    let read = Whom::Read(RaiseWhom::TokenOrRecord);
    let committed = world.sessions.commit(&holder, Change::default(), read).await;
    let token = committed.expect("no store is needed").token;
    assert_eq!(world.opened(&token), joined(&parts));
    let again = world.holder("", &[token]).await;
    let committed = world.sessions.commit(&again, Change::default(), read).await;
    assert_eq!(committed.expect("no store is needed").token, "", "it is carried already");
}

#[tokio::test]
async fn an_unreadable_token_makes_every_partition_unknown_until_each_was_resolved() {
    let world = world();
    let later_version = ring(&world.key).seal(&[2, 0, 0]);
    let rotated = sealed_by_another_key(&world.key, &wrote(KEY2, 90));
    for unreadable in [later_version, rotated] {
        let tokens = [unreadable, world.sealed(&saw(KEY1, 5))];
        let holder = world.holder("", &tokens).await;
        for key in [KEY1, KEY2] {
            assert_eq!(holder.ignorance(key, &Guards::on()), Some(Ignorance::Unreadable));
        }
        // A read of the first partition that resolved it by a leader sample.
        let change = Change {
            settle: vec![(KEY1, holder.component(KEY1).expect("it is carried").clone())],
            join: marked(KEY1, 1, Mark::demand(lsn(99))),
            ..Change::default()
        };
        let read = Whom::Read(RaiseWhom::TokenOrRecord);
        let committed = world.sessions.commit(&holder, change, read).await.expect("no store");
        let after = world.holder("", &[committed.token]).await;
        assert_eq!(after.known(KEY1, &Guards::on()), tidegate_core::trail::Known::Yes);
        assert!(after.component(KEY1).is_some_and(|component| !component.unresolved));
        assert_eq!(after.ignorance(KEY2, &Guards::on()), Some(Ignorance::Overflow));
    }
}

#[tokio::test]
async fn what_a_readable_token_names_beside_an_unreadable_one_is_not_taken_for_all() {
    let world = world();
    let rotated = sealed_by_another_key(&world.key, &wrote(KEY1, 90));
    let tokens = [rotated, world.sealed(&saw(KEY1, 5))];
    let holder = world.holder("", &tokens).await;
    let read = Whom::Read(RaiseWhom::TokenOrRecord);
    let change = Change::joining(saw(KEY2, 4));
    let committed = world.sessions.commit(&holder, change, read).await.expect("no store");
    let after = world.holder("", &[committed.token]).await;
    for key in [KEY1, KEY2] {
        let component = after.component(key).expect("it is carried");
        assert!(component.unresolved, "{key:?} would be read below the write at 90");
    }
}

#[tokio::test]
async fn a_token_that_does_not_fit_says_so_and_shrinks_to_what_the_caller_has_room_for() {
    let world = world();
    let mut token = SessionToken::new();
    for number in 3..63 {
        let key = ComponentKey { partition: PartitionId::new(number), system_tag: number };
        token.join(&marked(key, number, Mark::wrote(Some(lsn(5)), lsn(9))));
    }
    for (chars, at_most) in [(0, 1024), (512, 512), (59, 59), (usize::MAX, CHARS)] {
        let asked = Asked { subject: "", tokens: &[], max_token_chars: chars };
        let holder = world.sessions.identify(asked).await.expect("within all limits");
        let change = Change::joining(token.clone());
        let committed = world.sessions.commit(&holder, change, Whom::Write).await;
        let sealed = committed.expect("no store").token;
        assert!(sealed.len() <= at_most, "{} of {at_most}", sealed.len());
        let back = world.opened(&sealed);
        assert_eq!(back.overflow, back.components().count() < 60);
        assert_eq!(back.overflow, at_most <= 1024, "{chars}");
    }
}

#[tokio::test]
async fn nothing_is_printed_of_a_token_or_subject() {
    let world = world();
    let token = world.sealed(&wrote(KEY1, 0x00C0_FFEE));
    let tokens = [token.clone()];
    let asked = Asked { subject: "alice", tokens: &tokens, max_token_chars: 0 };
    let holder = world.sessions.identify(asked).await.expect("within all limits");
    let printed = format!("{asked:?} {holder:?} {:?}", world.store.0.kept);
    for secret in ["alice", "C0FFEE", token.as_str()] {
        assert!(!printed.contains(secret), "{printed}");
    }
}
