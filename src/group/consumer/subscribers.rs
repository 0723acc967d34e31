//! Which topics members subscribe to by their names. Members that subscribe alike share one list of names, and lists
//! share their names, so that one more of them costs no more than comparing its names with those that are there.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::topics::{TopicShape, Topics};

/// Bytes that a list takes beside its names, and a place on it.
const LIST_BYTES: usize = 96;
const PLACE_BYTES: usize = size_of::<Rc<str>>();

/// Bytes that a name takes beside its text.
const NAME_BYTES: usize = 128;

/// Names are looked up one by one, and not by walking all that there are, when they are so many times fewer.
const MUCH_FEWER: usize = 8;

/// Names, sorted, each there once.
pub(crate) type Names = Rc<[Rc<str>]>;

/// What is known of a name.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Lists that it is on.
    lists: usize,
    /// The topic that has it, if there is one; `None` when that was not looked up yet.
    topic: Option<Option<TopicShape>>,
}

/// The subscriptions of a group.
#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    /// Members by what they subscribe to; without those that name nothing.
    lists: BTreeMap<Names, usize>,
    names: BTreeMap<Rc<str>, Known>,
    /// Version of the topics that names were looked up in.
    seen: Option<u64>,
    bytes: usize,
}

impl Subscribers {
    /// Names as a list that members alike share.
    pub(crate) fn shared<'n>(&self, names: impl Iterator<Item = &'n str>) -> Names {
        let mut sorted: Vec<&str> = names.collect();
        sorted.sort_unstable();
        sorted.dedup();
        let is_few = self.is_few(sorted.len());
        let mut all = self.names.keys().peekable();
        let shared = |name: &&str| {
            let known = match is_few {
                true => self.names.get_key_value(*name).map(|(known, _)| known),
                false => {
                    while all.next_if(|known| ***known < **name).is_some() {}
                    all.next_if(|known| ***known == **name)
                }
            };
            known.map_or_else(|| Rc::from(*name), Rc::clone)
        };
        let list: Names = sorted.iter().map(shared).collect();
        match self.lists.get_key_value(&list) {
            Some((known, _)) => Rc::clone(known),
            None => list,
        }
    }

    /// One more member subscribes to what is on a list, which is one of [`Subscribers::shared`].
    pub(crate) fn add(&mut self, list: &Names) {
        if list.is_empty() {
            return;
        }
        if let Some(members) = self.lists.get_mut(list) {
            *members += 1;
            return;
        }
        self.lists.insert(Rc::clone(list), 1);
        self.bytes += bytes_of_list(list);
        let missing = self.each(list, |_, known| known.lists += 1);
        self.bytes += missing.iter().map(bytes_of_name).sum::<usize>();
        let is_few = self.is_few(missing.len());
        let new = missing.into_iter().map(|name| {
            let on_this = Known {
                lists: 1,
                topic: None,
            };
            (name, on_this)
        });
        match is_few {
            true => self.names.extend(new),
            false => self.names.append(&mut new.collect()),
        }
    }

    /// One member less subscribes to what is on a list.
    pub(crate) fn remove(&mut self, list: &Names) {
        let Some(members) = self.lists.get_mut(list) else {
            return;
        };
        *members -= 1;
        if *members > 0 {
            return;
        }
        self.lists.remove(list);
        self.bytes -= bytes_of_list(list);
        let mut gone = Vec::new();
        self.each(list, |name, known| {
            known.lists -= 1;
            if known.lists == 0 {
                gone.push(Rc::clone(name));
            }
        });
        self.bytes -= gone.iter().map(bytes_of_name).sum::<usize>();
        if gone.len() == self.names.len() {
            self.names.clear();
        }
        for name in gone {
            self.names.remove(&name);
        }
    }

    /// A member has another list than before.
    pub(crate) fn replace(&mut self, before: &Names, now: &Names) {
        if !Rc::ptr_eq(before, now) {
            // In this order, so that what stays is not looked up again.
            self.add(now);
            self.remove(before);
        }
    }

    /// Bytes that would come and that would go with [`Subscribers::replace`].
    pub(crate) fn changes(&self, before: &Names, now: &Names) -> (usize, usize) {
        if before == now {
            return (0, 0);
        }
        let (mut more, mut less) = (0, 0);
        if !now.is_empty() && !self.lists.contains_key(now) {
            let new = now.iter().filter(|name| !self.names.contains_key(*name));
            more = bytes_of_list(now) + new.map(bytes_of_name).sum::<usize>();
        }
        if self.lists.get(before) == Some(&1) {
            let is_gone = |name: &&Rc<str>| {
                let is_last = self.names.get(*name).is_some_and(|known| known.lists == 1);
                is_last && now.binary_search(name).is_err()
            };
            let gone = before.iter().filter(is_gone);
            less = bytes_of_list(before) + gone.map(bytes_of_name).sum::<usize>();
        }
        (more, less)
    }

    /// Calls `found` with each of these sorted names that is known, and returns the others.
    fn each(
        &mut self,
        sorted: &[Rc<str>],
        mut found: impl FnMut(&Rc<str>, &mut Known),
    ) -> Vec<Rc<str>> {
        let mut missing = Vec::new();
        if self.is_few(sorted.len()) {
            for name in sorted {
                match self.names.get_mut(name) {
                    Some(known) => found(name, known),
                    None => missing.push(Rc::clone(name)),
                }
            }
            return missing;
        }
        let mut all = self.names.iter_mut().peekable();
        for name in sorted {
            while all.next_if(|(known, _)| *known < name).is_some() {}
            match all.next_if(|(known, _)| *known == name) {
                Some((_, known)) => found(name, known),
                None => missing.push(Rc::clone(name)),
            }
        }
        missing
    }

    fn is_few(&self, names: usize) -> bool {
        names.saturating_mul(MUCH_FEWER) < self.names.len()
    }

    /// Looks up what was not looked up since topics changed.
    pub(crate) fn look_up(&mut self, topics: &Topics) {
        let version = Some(topics.version());
        let is_new = self.seen != version;
        self.seen = version;
        for (name, known) in &mut self.names {
            if is_new || known.topic.is_none() {
                known.topic = Some(topics.topic(name));
            }
        }
    }

    /// All names, sorted, with their topics as of the last [`Subscribers::look_up`].
    pub(crate) fn topics(&self) -> impl Iterator<Item = (&Rc<str>, Option<TopicShape>)> {
        let names = self.names.iter();
        names.map(|(name, known)| (name, known.topic.flatten()))
    }

    /// True when a member subscribes to `topic` by its name.
    pub(crate) fn contains(&self, topic: &str) -> bool {
        self.names.contains_key(topic)
    }

    /// Approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Checks that it says of members what they say, whose lists these are.
    ///
    /// # Panics
    /// When it does not.
    pub(crate) fn check<'m>(&self, group: &str, members: impl Iterator<Item = &'m Names>) {
        let mut lists: BTreeMap<&Names, usize> = BTreeMap::new();
        for list in members.filter(|list| !list.is_empty()) {
            *lists.entry(list).or_default() += 1;
        }
        let ours: BTreeMap<&Names, usize> = self.lists.iter().map(|(l, n)| (l, *n)).collect();
        assert_eq!(lists, ours, "{group}: lists");
        let mut names: BTreeMap<&Rc<str>, usize> = BTreeMap::new();
        for name in self.lists.keys().flat_map(|list| list.iter()) {
            *names.entry(name).or_default() += 1;
        }
        let ours = self.names.iter().map(|(name, known)| (name, known.lists));
        assert_eq!(names, ours.collect(), "{group}: names");
        let bytes = self.lists.keys().map(bytes_of_list).sum::<usize>()
            + self.names.keys().map(bytes_of_name).sum::<usize>();
        assert_eq!(bytes, self.bytes, "{group}: bytes of names");
    }
}

fn bytes_of_list(list: &Names) -> usize {
    LIST_BYTES + list.len() * PLACE_BYTES
}

fn bytes_of_name(name: &Rc<str>) -> usize {
    NAME_BYTES + name.len()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{Names, Subscribers};

    fn names(of: impl Iterator<Item = usize>) -> Vec<String> {
        of.map(|n| format!("topic-{n:04}")).collect()
    }

    fn shared(all: &Subscribers, names: &[String]) -> Names {
        all.shared(names.iter().rev().map(String::as_str))
    }

    #[test]
    fn lists_and_names_are_counted_whatever_comes_and_goes() {
        let mut all = Subscribers::default();
        let mut members: Vec<Names> = Vec::new();
        // Large and small ones, alike, overlapping, within each other, and empty.
        let wanted = [
            names(0..300),
            names((0..300).step_by(3)),
            names(0..300),
            names(298..302),
            names(0..0),
            names((1..900).step_by(2)),
        ];
        for list in &wanted {
            members.push(shared(&all, list));
            all.add(&members[members.len() - 1]);
            all.check("g", members.iter());
        }
        assert!(Rc::ptr_eq(&members[0], &members[2]), "alike");
        let of_one = |n: usize| members[n].iter().position(|name| &**name == "topic-0299");
        let (a, b) = (of_one(0).expect("there"), of_one(3).expect("there"));
        assert!(Rc::ptr_eq(&members[0][a], &members[3][b]), "one text");
        assert!(all.contains("topic-0301") && !all.contains("topic-0302"));
        while members.len() > 1 {
            let other = shared(&all, &wanted[members.len() % 3]);
            let (more, less) = all.changes(&members[0], &other);
            let told = all.bytes() + more - less;
            all.replace(&members[0], &other);
            assert_eq!(all.bytes(), told, "told before");
            members[0] = other;
            all.remove(&members.pop().expect("one is left"));
            all.check("g", members.iter());
        }
        all.remove(&members[0]);
        assert_eq!((all.bytes(), all.topics().count()), (0, 0));
    }
}
