//! `thalweg group history`.

use thalweg_control::{HistoryAnswer, MemberNames, RebalanceLine};

use crate::args::{GroupHistoryArgs, format_moment};
use crate::broker_http::{BrokerHttp, segment};
use crate::exit::{Exit, Failure, connect};
use crate::output::{self, Align, or_dash, printable};

pub(super) fn run(args: &GroupHistoryArgs) -> Result<(), Failure> {
    let cluster_id = connect(&args.broker)?.describe_cluster()?.cluster_id;
    let http = BrokerHttp::of(&args.http, &args.broker, Some(&cluster_id));
    let answer: HistoryAnswer = http.get(&format!("/groups/{}/history", segment(&args.group)))?;
    let Some(rebalances) = answer.rebalances else {
        let text = format!("group {} does not exist", printable(&args.group));
        return Err(Failure::new(Exit::NotFound, text));
    };
    if args.json {
        return Ok(output::json(&rebalances)?);
    }
    let headings = [
        ("BEGAN", Align::Left),
        ("TOOK", Align::Right),
        ("UNOWNED", Align::Right),
        ("GENERATION", Align::Right),
        ("CAUSE", Align::Left),
        ("JOINED", Align::Left),
        ("LEFT", Align::Left),
        ("TIMED OUT", Align::Left),
    ];
    let row = |line: &RebalanceLine| {
        vec![
            format_moment(line.began_ms),
            format!("{} ms", line.took_ms),
            format!("{} ms", line.unowned_ms),
            or_dash(line.generation),
            line.cause.clone(),
            names(&line.joined),
            names(&line.left),
            names(&line.timed_out),
        ]
    };
    Ok(output::table(
        &headings,
        &rebalances.iter().map(row).collect::<Vec<_>>(),
    )?)
}

fn names(names: &MemberNames) -> String {
    let mut text = names.members.join(",");
    if names.more > 0 {
        text.push_str(&format!(" and {} more", names.more));
    }
    or_dash(Some(text).filter(|text| !text.is_empty()))
}
