//! Requests and errors per Kafka API.

/// Api keys are below this (Kafka 4.4 ends at 93). Larger ones never reach a handler.
const API_KEYS: usize = 128;

/// Counts of one API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiCounts {
    /// Kafka's name of the API, as a label value; empty while unused.
    pub name: &'static str,
    /// Requests received.
    pub requests: u64,
    /// Error codes sent, by Kafka's name. Bounded by the number of error codes.
    pub errors: Vec<(&'static str, u64)>,
}

/// Counts by api key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiTable {
    by_key: Box<[ApiCounts]>,
}

impl Default for ApiTable {
    fn default() -> Self {
        ApiTable {
            by_key: vec![ApiCounts::default(); API_KEYS].into_boxed_slice(),
        }
    }
}

impl ApiTable {
    /// Counts one request. `key` is the api key, `name` Kafka's name for it. Keys outside Kafka's
    /// range are not counted: they close their connection, which is counted there.
    pub fn count_request(&mut self, key: i16, name: &'static str) {
        if let Some(counts) = self.slot(key, name) {
            counts.requests += 1;
        }
    }

    /// Counts one error code in an answer. `error` is Kafka's name of the code.
    pub fn count_error(&mut self, key: i16, name: &'static str, error: &'static str) {
        let Some(counts) = self.slot(key, name) else {
            return;
        };
        match counts.errors.iter_mut().find(|(known, _)| *known == error) {
            Some((_, count)) => *count += 1,
            None => counts.errors.push((error, 1)),
        }
    }

    /// Counts of one API.
    #[must_use]
    pub fn get(&self, key: i16) -> Option<&ApiCounts> {
        usize::try_from(key).ok().and_then(|at| self.by_key.get(at))
    }

    /// APIs that were used, in the order of their keys.
    pub fn used(&self) -> impl Iterator<Item = &ApiCounts> {
        self.by_key.iter().filter(|counts| !counts.name.is_empty())
    }

    /// Adds `other` to this table.
    pub fn merge(&mut self, other: &ApiTable) {
        for (mine, theirs) in self.by_key.iter_mut().zip(&other.by_key) {
            if mine.name.is_empty() {
                mine.name = theirs.name;
            }
            mine.requests += theirs.requests;
            for (error, count) in &theirs.errors {
                match mine.errors.iter_mut().find(|(known, _)| known == error) {
                    Some((_, sum)) => *sum += count,
                    None => mine.errors.push((error, *count)),
                }
            }
        }
    }

    fn slot(&mut self, key: i16, name: &'static str) -> Option<&mut ApiCounts> {
        let counts = usize::try_from(key)
            .ok()
            .and_then(|at| self.by_key.get_mut(at))?;
        counts.name = name;
        Some(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::ApiTable;

    #[test]
    fn counts_merge_by_key_and_error() {
        let mut one = ApiTable::default();
        one.count_request(0, "Produce");
        one.count_error(0, "Produce", "CORRUPT_MESSAGE");
        let mut two = ApiTable::default();
        two.count_request(0, "Produce");
        two.count_error(0, "Produce", "CORRUPT_MESSAGE");
        two.count_error(0, "Produce", "NOT_LEADER_OR_FOLLOWER");
        one.merge(&two);
        let produce = one.get(0).expect("key 0");
        assert_eq!(produce.requests, 2);
        assert_eq!(
            produce.errors,
            [("CORRUPT_MESSAGE", 2), ("NOT_LEADER_OR_FOLLOWER", 1)]
        );
        assert_eq!(one.used().count(), 1);
    }

    #[test]
    fn bi10_keys_outside_the_table_are_not_counted() {
        let mut table = ApiTable::default();
        for key in [-1, i16::MIN, 128, i16::MAX] {
            table.count_request(key, "?");
            table.count_error(key, "?", "X");
        }
        assert_eq!(table.used().count(), 0);
    }
}
