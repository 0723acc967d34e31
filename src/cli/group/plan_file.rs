//! The file of `thalweg group reset-offsets --from-file`: comma-separated values as Kafka's
//! `kafka-consumer-groups.sh --export` writes them, `TOPIC,PARTITION,OFFSET` or
//! `GROUP,TOPIC,PARTITION,OFFSET`. Fields may stand in double quotes, doubled where they are part of one.

use super::TopicPartition;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedOffset {
    /// `None`: of whichever group the command names.
    pub(super) group: Option<String>,
    pub(super) of: TopicPartition,
    pub(super) offset: i64,
}

/// Reads all lines; empty ones are passed over.
///
/// # Errors
/// The first line that is none, with its number.
pub(super) fn parse(text: &str) -> Result<Vec<PlannedOffset>, String> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            let planned = fields(line.trim_end_matches('\r')).and_then(planned);
            planned.ok_or_else(|| {
                format!(
                    "line {}: `{line}` is not [GROUP,]TOPIC,PARTITION,OFFSET",
                    at + 1
                )
            })
        })
        .collect()
}

/// One line, with the group where it is named.
pub(super) fn line(
    group: Option<&str>,
    (topic, partition): &TopicPartition,
    offset: i64,
) -> String {
    let group = group.map_or_else(String::new, |name| format!("{},", field(name)));
    format!("{group}{},{partition},{offset}", field(topic))
}

fn planned(fields: Vec<String>) -> Option<PlannedOffset> {
    let mut fields = fields.into_iter();
    let group = match fields.len() {
        3 => None,
        4 => fields.next(),
        _other => return None,
    };
    let (topic, partition, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let partition = partition.trim().parse().ok().filter(|p| *p >= 0)?;
    let offset = offset.trim().parse().ok().filter(|o| *o >= 0)?;
    (!topic.is_empty()).then_some(PlannedOffset {
        group,
        of: (topic, partition),
        offset,
    })
}

fn field(text: &str) -> String {
    match text.contains([',', '"', ' ']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// `None` when quotes do not match.
fn fields(line: &str) -> Option<Vec<String>> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return after.is_empty().then_some(fields),
        }
    }
}

/// What is before the closing quote, and what is behind it.
fn quoted_field(text: &str) -> Option<(String, &str)> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        field.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(next) => {
                field.push('"');
                rest = next;
            }
            None => return Some((field, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PlannedOffset, line, parse};

    #[test]
    fn lines_there_and_back() {
        let of = ("t".to_owned(), 3);
        for group in [None, Some("g"), Some("a,b"), Some("say \"hi\"")] {
            let text = line(group, &of, 17);
            let planned = PlannedOffset {
                group: group.map(str::to_owned),
                of: of.clone(),
                offset: 17,
            };
            assert_eq!(parse(&text), Ok(vec![planned]), "{text}");
        }
        // As Kafka's tool writes them.
        let planned = parse("\"t\",0,5\r\n\n\"u\",1,6\n").unwrap();
        assert_eq!((planned.len(), planned[1].offset), (2, 6));
    }

    #[test]
    fn what_is_no_line_is_named_by_its_number() {
        for bad in [
            "t",
            "t,0",
            "t,0,x",
            "t,-1,5",
            "t,0,-5",
            ",0,5",
            "a,b,c,0,1",
            "\"t,0,5",
        ] {
            let said = parse(&format!("t,0,1\n{bad}\n")).unwrap_err();
            assert!(said.starts_with("line 2: "), "{bad}: {said}");
        }
    }
}
