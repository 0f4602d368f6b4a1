//! Sessions over the API: what is known of them, how tokens join, and when an answer has one.

use tidegate_core::token::SessionToken;
use tidegate_proto::v1;
use tidegate_proto::v1::resolve_session_response::State;

use super::facts::{of_unknown_key, opened};
use super::stage::{Routing, alone, beside, carrying, named, of_subject, record, select};

async fn resolved(routing: &mut Routing, session: v1::Session) -> v1::ResolveSessionResponse {
    let request = v1::ResolveSessionRequest { session: Some(session) };
    routing.resolve_session(request).await.expect("a lookup").into_inner()
}

#[test]
fn a_session_is_none_known_or_unknown() {
    beside(async |stage| {
        let mut routing = stage.routing().await;
        let (_, recorded) = stage.written(&mut routing, of_subject("ann")).await;
        assert_eq!(recorded.stored(), v1::Stored::Memory);
        let token = recorded.token;

        let nobody = resolved(&mut routing, of_subject("")).await;
        assert_eq!((nobody.state(), nobody.token.as_str()), (State::None, ""));
        let carried = resolved(&mut routing, carrying(&[&token])).await;
        assert_eq!((carried.state(), carried.token.as_str()), (State::Known, ""));
        let subject = resolved(&mut routing, of_subject("ann")).await;
        assert_eq!(subject.state(), State::Known);
        let rotated = resolved(&mut routing, carrying(&[&of_unknown_key(&token)])).await;
        assert_eq!(rotated.state(), State::Unknown);
        assert!(opened(&rotated.token).overflow, "a job that gets it must not read behind");
        // The memory store has just started: it may have forgotten anybody.
        let stranger = resolved(&mut routing, of_subject("nobody has this name")).await;
        assert_eq!(stranger.state(), State::Unknown);
        assert!(opened(&stranger.token).overflow, "a job that gets it must not read behind");
    });
}

#[test]
fn a_job_that_gets_the_token_of_a_subject_sees_its_write() {
    alone(async |stage| {
        let mut routing = stage.routing().await;
        stage
            .paused(&["r1", "r2"], async {
                let (id, _) = stage.written(&mut routing, of_subject("bob")).await;
                let token = resolved(&mut routing, of_subject("bob")).await.token;
                let request = select(carrying(&[&token]), v1::Level::Session);
                let answer = routing.select_replica(request).await.expect("answered").into_inner();
                assert!(stage.shows(&named(&answer), id).await);
                // The wrong way: the job starts without it.
                let request = select(of_subject(""), v1::Level::Session);
                let answer = routing.select_replica(request).await.expect("answered").into_inner();
                assert!(!stage.shows(&named(&answer), id).await);
            })
            .await;
    });
}

#[test]
fn sixteen_racing_tokens_joined_lose_nothing() {
    beside(async |stage| {
        let mut routing = stage.routing().await;
        let (_, first) = stage.written(&mut routing, of_subject("")).await;
        // As from one browser: each request starts from the same token and brings its own back.
        let mut captures = Vec::new();
        for _ in 0..16 {
            captures.push(stage.write().await.1);
        }
        let racing = captures.iter().map(async |capture| {
            let mut routing = stage.routing().await;
            let request = record(carrying(&[&first.token]), capture);
            routing.record(request).await.expect("recorded").into_inner().token
        });
        let tokens: Vec<String> = futures::future::join_all(racing).await;
        let mut expected = SessionToken::new();
        tokens.iter().for_each(|token| expected.join(&opened(token)));
        let all: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let answer = resolved(&mut routing, carrying(&all)).await;
        assert_eq!((answer.state(), opened(&answer.token)), (State::Known, expected.clone()));
        // In another order, and one by one, it is the same.
        let reversed: Vec<&str> = all.iter().rev().copied().collect();
        let answer = resolved(&mut routing, carrying(&reversed)).await;
        assert_eq!(opened(&answer.token), expected);
        // One of them alone would have lost something.
        assert!(tokens.iter().any(|token| opened(token) != expected));
    });
}

#[test]
fn a_token_is_empty_when_nothing_changed() {
    beside(async |stage| {
        let mut routing = stage.routing().await;
        let (_, capture) = stage.write().await;
        let recorded = routing.record(record(of_subject(""), &capture)).await.expect("recorded");
        let token = recorded.into_inner().token;
        assert_ne!(token, "");
        let session = carrying(&[&token]);
        let again = routing.record(record(session.clone(), &capture)).await.expect("recorded");
        assert_eq!(again.into_inner().token, "");
        for level in [v1::Level::Session, v1::Level::Eventual, v1::Level::Leader] {
            let request = select(session.clone(), level);
            let answer = routing.select_replica(request).await.expect("answered").into_inner();
            assert_eq!(answer.token, "", "{level:?}");
        }
        // A session named by its subject alone is remembered by the store: it carries nothing.
        let request = select(of_subject("cookieless"), v1::Level::Session);
        let answer = routing.select_replica(request).await.expect("answered").into_inner();
        assert_eq!(answer.token, "");
    });
}

#[test]
fn no_token_is_longer_than_its_caller_has_room_for() {
    beside(async |stage| {
        let mut routing = stage.routing().await;
        for (room, longest) in [(0, 1024), (1, 136), (136, 136), (512, 512), (u32::MAX, 8192)] {
            let session = v1::Session { max_token_chars: room, ..of_subject("") };
            let (_, recorded) = stage.written(&mut routing, session).await;
            let chars = recorded.token.len();
            assert!((1..=longest).contains(&chars), "room for {room}: {chars}");
            let (_, mark) = opened(&recorded.token)
                .components()
                .next()
                .map(|(key, own)| (key, own.marks().count()))
                .expect("one partition fits in the least room");
            assert_eq!(mark, 1);
        }
    });
}

#[test]
fn evidence_kept_by_a_client_is_recorded_by_its_next_call() {
    beside(async |stage| {
        let mut routing = stage.routing().await;
        let (_, capture) = stage.write().await;
        let session = v1::Session { evidence: vec![capture.clone()], ..of_subject("") };
        let request = select(session.clone(), v1::Level::Session);
        let answer = routing.select_replica(request).await.expect("answered").into_inner();
        let direct = routing.record(record(of_subject(""), &capture)).await.expect("recorded");
        let direct = opened(&direct.into_inner().token);
        assert_eq!(opened(&answer.token), direct);
        // A record may bring nothing else.
        let request = v1::RecordRequest { session: Some(session), ..Default::default() };
        let answer = routing.record(request).await.expect("recorded").into_inner();
        assert_eq!(opened(&answer.token), direct);
    });
}

#[test]
fn acknowledging_what_is_not_known_is_no_error_and_loses_nothing() {
    beside(async |stage| {
        let mut routing = stage.routing().await;
        let (_, recorded) = stage.written(&mut routing, of_subject("")).await;
        let request = v1::AcknowledgeNoticesRequest {
            session: Some(carrying(&[&recorded.token])),
            ids: vec!["00000000000000ff".to_owned()],
        };
        let answer = routing.acknowledge_notices(request).await.expect("ignored").into_inner();
        // The id is remembered: the notice may still come with another token of the session.
        let (before, after) = (opened(&recorded.token), opened(&answer.token));
        assert!(after.components().eq(before.components()));
        assert_eq!((after.notices().count(), after.acknowledged().count()), (0, 1));
    });
}
