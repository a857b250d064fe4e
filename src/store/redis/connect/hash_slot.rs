//! Which hash slot of a cluster a key lies in: CRC16 of its hash tag, or of all of it. And grouping by
//! that, since a script has to keep to one hash slot.

use crc16::{State, XMODEM};
use hashbrown::HashMap;
use smallvec::SmallVec;

pub(crate) const SLOTS: u16 = 16_384;

pub(crate) fn hash_slot(key: &[u8]) -> u16 {
    State::<XMODEM>::calculate(tag(key).unwrap_or(key)) % SLOTS
}

/// What lies in one hash slot.
#[derive(Debug)]
pub(crate) struct HashSlotGroup<T> {
    pub(crate) slot: u16,
    pub(crate) items: SmallVec<[T; 4]>,
}

/// Groups by hash slot, in the order in which the slots come first. A few items need no allocation.
pub(crate) fn group_by_hash_slot<T>(
    items: impl IntoIterator<Item = T>,
    slot_of: impl Fn(&T) -> u16,
) -> SmallVec<[HashSlotGroup<T>; 4]> {
    /// So many groups are searched faster than a map is built.
    const FEW: usize = 8;
    let mut groups: SmallVec<[HashSlotGroup<T>; 4]> = SmallVec::new();
    let mut positions: HashMap<u16, usize> = HashMap::new();
    for item in items {
        let slot = slot_of(&item);
        let few = groups.iter().take(FEW).position(|group| group.slot == slot);
        match few.or_else(|| positions.get(&slot).copied()) {
            Some(position) => groups[position].items.push(item),
            None => {
                if groups.len() >= FEW {
                    positions.insert(slot, groups.len());
                }
                groups.push(HashSlotGroup { slot, items: smallvec::smallvec![item] });
            }
        }
    }
    groups
}

/// What stands between the first `{` and the next `}`, unless that is nothing. Only a prefix from
/// the configuration can have one.
fn tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')? + 1;
    let length = key[open..].iter().position(|byte| *byte == b'}')?;
    Some(&key[open..open + length]).filter(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_that_redis_finds() {
        // From the cluster specification, and from CLUSTER KEYSLOT.
        assert_eq!(hash_slot(b"123456789"), 0x31c3);
        assert_eq!(hash_slot(b"foo"), 12_182);
        assert_eq!(hash_slot(b""), 0);
    }

    #[test]
    fn a_tag_stands_for_the_key() {
        assert_eq!(hash_slot(b"{weir}:per-ip:a"), hash_slot(b"weir"));
        assert_eq!(hash_slot(b"foo{bar}{zap}"), hash_slot(b"bar"));
        assert_ne!(hash_slot(b"foo{}bar"), hash_slot(b""));
        assert_eq!(hash_slot(b"foo{{bar}}zap"), hash_slot(b"{bar"));
    }

    #[test]
    fn groups_come_in_the_order_of_their_first_items() {
        let grouped = |items: Vec<u16>| {
            let groups = group_by_hash_slot(items, |it| it / 10);
            groups.into_iter().map(|it| (it.slot, it.items.into_vec())).collect::<Vec<_>>()
        };
        assert_eq!(grouped(vec![]), []);
        assert_eq!(grouped(vec![31, 10, 32]), [(3, vec![31, 32]), (1, vec![10])]);
        let many: Vec<u16> = (0..100).rev().chain(100..200).chain(0..100).collect();
        let groups = grouped(many);
        assert_eq!(groups.len(), 20);
        assert!(groups.iter().all(|(slot, items)| items.iter().all(|it| it / 10 == *slot)));
        assert_eq!(groups[19].1, (190..200).collect::<Vec<_>>());
        assert_eq!(groups[9].1.len(), 20);
    }
}
