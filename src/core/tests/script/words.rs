//! Effects, plans and demands as words.

use tidegate_core::leader::Leadership;
use tidegate_core::partition::{Effect, Notable, Pace, WaitEnd};
use tidegate_core::routing::{Plan, Step};
use tidegate_core::token::Mark;
use tidegate_core::trail::{Ready, Resolution, Unprovable};
use tidegate_core::views::NodeId;

use super::names::{NODES, epoch_name, fork_name, node_name, nodes};

/// Which effects a story tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// Answers alone.
    Nothing,
    /// How waits end, and how nodes are polled.
    Waits,
    /// What an operator would notice.
    Notables,
}

/// What a caller or an operator would notice of effects.
pub(crate) fn effects(effects: &[Effect], told: Told) -> Vec<String> {
    let mut words: Vec<String> =
        effects.iter().filter_map(|effect| effect_words(effect, told)).collect();
    let paces: Vec<(NodeId, Pace)> =
        effects
            .iter()
            .filter_map(|effect| {
                if let Effect::Pace(node, pace) = effect { Some((*node, *pace)) } else { None }
            })
            .collect();
    let mut told_paces = paces.clone();
    told_paces.dedup_by_key(|(_, pace)| *pace);
    for (_, pace) in told_paces.iter().filter(|_| told == Told::Waits) {
        let paced = paces.iter().filter(|(_, other)| other == pace).map(|(node, _)| *node);
        let paced: Vec<NodeId> = paced.collect();
        let at_once = pace.sample_after.map_or("", |_| ", and now");
        let names = if paced.len() == NODES.len() { "all".to_owned() } else { nodes(&paced) };
        words.push(format!("poll {names} every {}ms{at_once}", pace.interval.as_millis()));
    }
    words
}

fn effect_words(effect: &Effect, told: Told) -> Option<String> {
    match (effect, told) {
        (Effect::Wake(id, end), Told::Waits) => {
            Some(format!("wait {}: {}", id.value(), wait_end(end)))
        }
        (Effect::Sampled(_), Told::Waits) => Some("the need is met".to_owned()),
        (Effect::StoreFacts(_), Told::Waits) => Some("facts stored".to_owned()),
        (Effect::WriteRow { node, row, .. }, Told::Notables) => {
            Some(format!("write row {} on {}", epoch_name(row.epoch), node_name(*node)))
        }
        (Effect::Emit(notable), Told::Notables) => Some(notable_words(notable)),
        (
            Effect::Publish(_)
            | Effect::Wake(..)
            | Effect::Sampled(_)
            | Effect::Pace(..)
            | Effect::StoreFacts(_)
            | Effect::WriteRow { .. }
            | Effect::Emit(_),
            Told::Nothing | Told::Waits | Told::Notables,
        ) => None,
    }
}

fn wait_end(end: &WaitEnd) -> String {
    match end {
        WaitEnd::Fresh(fresh) => format!("fresh on {}", nodes(fresh)),
        WaitEnd::Judge => "judge again".to_owned(),
        WaitEnd::Expired => "time is up".to_owned(),
        WaitEnd::Gone => "no node is left".to_owned(),
        WaitEnd::Full => "too many wait".to_owned(),
    }
}

fn notable_words(notable: &Notable) -> String {
    match notable {
        Notable::Leadership(leadership) => leadership_words(leadership),
        Notable::Quarantined(node, why) => format!("{} is quarantined, {why:?}", node_name(*node)),
        Notable::RowConflict(epoch) => format!("the origin of {} is disputed", epoch_name(*epoch)),
        Notable::NewEpoch { row, .. } => match row.parent {
            None => format!("new epoch {}", epoch_name(row.epoch)),
            Some(parent) => {
                let (epoch, parent) = (epoch_name(row.epoch), epoch_name(parent));
                format!("new epoch {epoch} after {parent}, {}", fork_name(row.fork))
            }
        },
        Notable::Restored(node, _) => format!("{} continues nothing known", node_name(*node)),
        Notable::Verdict(winner, aside) => {
            let aside: Vec<String> = aside.iter().map(|epoch| epoch_name(*epoch)).collect();
            format!("{} counts, not {}", epoch_name(*winner), aside.join(" "))
        }
        Notable::Resumed(node) => format!("{} is vouched for", node_name(*node)),
        Notable::RowUnwritable(epoch) => format!("the row of {} is refused", epoch_name(*epoch)),
        Notable::ForeignSystem(node) => format!("{} is another database", node_name(*node)),
    }
}

pub(crate) fn leadership_words(leadership: &Leadership) -> String {
    match leadership {
        Leadership::Nobody => "nobody ever led".to_owned(),
        Leadership::Leader(leader) => {
            format!("{} leads in {}", node_name(leader.node), epoch_name(leader.epoch))
        }
        Leadership::Last(epoch) => format!("nobody leads, {} was the last", epoch_name(*epoch)),
        Leadership::Split(heads) => {
            let heads = heads.iter().map(|head| epoch_name(head.epoch));
            format!("split between {}", heads.collect::<Vec<_>>().join(" and "))
        }
    }
}

/// The steps of a plan that are walked, one a line.
pub(crate) fn plan(plan: &Plan) -> Vec<String> {
    let step = |step: &Step| match step {
        Step::Serve { node } => format!("replica {}", node_name(*node)),
        Step::Park { nodes: hopeful, budget } => {
            format!("wait {}ms for {}", budget.as_millis(), nodes(hopeful))
        }
        Step::Leader { leader, fallback } => {
            let permit = if *fallback { ", if the cap permits" } else { "" };
            format!("leader {}{permit}", node_name(leader.node))
        }
        Step::Stale { node, lag: Some(lag) } => {
            let (bytes, time) = (lag.bytes, lag.time.as_millis());
            format!("stale {}, {bytes} bytes and {time}ms behind", node_name(*node))
        }
        Step::Stale { node, lag: None } => {
            format!("stale {}, by how much unknown", node_name(*node))
        }
        Step::Refuse { reason } => format!("refuse, {reason:?}"),
    };
    let is_skipped = |step: &&Step| matches!(step, Step::Park { nodes, .. } if nodes.is_empty());
    plan.steps.iter().filter(|step| !is_skipped(step)).map(step).collect()
}

/// What a session demands and is told, one thing a line.
pub(crate) fn resolution(resolution: &Resolution) -> Vec<String> {
    match resolution {
        Resolution::NeedSample { .. } => {
            vec!["needs a leader sample sent after the call".to_owned()]
        }
        Resolution::Ready(ready) => ready_words(ready),
    }
}

fn ready_words(ready: &Ready) -> Vec<String> {
    let mut words = Vec::new();
    for demand in ready.floor.demands() {
        words.push(format!("demand {} {}", epoch_name(demand.epoch), demand.position));
    }
    if ready.ungated {
        words.push("not gated: read-your-writes is not promised".to_owned());
    }
    if let Some(why) = ready.unprovable {
        words.push(format!("cannot be proven: {}", unprovable(why)));
    }
    for loss in &ready.losses {
        let (lost, child) = (epoch_name(loss.lost), epoch_name(loss.child));
        let future = if loss.future { ", it was past its leader" } else { "" };
        words.push(format!("tell {:?} of {lost}, now {child}{future}", loss.kind));
    }
    for (_, epoch, _) in &ready.raise.drop {
        words.push(format!("drop the mark of {}", epoch_name(*epoch)));
    }
    for (_, component) in &ready.raise.join {
        for (epoch, mark) in component.marks() {
            words.push(format!("join {} {}", epoch_name(epoch), mark_words(&mark)));
        }
    }
    if !ready.raise.settle.is_empty() {
        words.push("settle what was unresolved".to_owned());
    }
    words
}

fn mark_words(mark: &Mark) -> String {
    let mut words = mark.floor.to_string();
    for (key, position) in [("after", mark.after), ("upto", mark.upto), ("saw", mark.saw)] {
        if let Some(position) = position {
            words.push_str(&format!(" {key} {position}"));
        }
    }
    words
}

fn unprovable(why: Unprovable) -> String {
    match why {
        Unprovable::NoLeader => "no leader".to_owned(),
        Unprovable::Split => "split".to_owned(),
        Unprovable::NoSample => "the leader did not answer".to_owned(),
        Unprovable::UnknownEpoch { timeline } => format!("nobody shows timeline {timeline}"),
    }
}
