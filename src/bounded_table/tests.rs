use super::*;

fn id(number: usize) -> BucketId {
    BucketId((number as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// A table of numbers, each of its own weight.
fn add(table: &mut BoundedTable<usize>, number: usize) -> Option<Inserted<usize>> {
    table.insert(id(number), number, |it| Some(*it))
}

#[test]
fn full_table_finds_all_that_it_has_and_nothing_else() {
    let mut table = BoundedTable::new(100);
    let mut gone = Vec::new();
    for number in 0..5_000 {
        gone.extend(add(&mut table, number).expect("room").removed);
        assert!(table.len() <= 100);
    }
    assert_eq!(gone.len(), 4_900);
    for number in 0..5_000 {
        let found = table.find(id(number)).map(|at| table[at]);
        assert_eq!(found, (!gone.contains(&number)).then_some(number));
    }
}

#[test]
fn entry_without_a_weight_stays() {
    let mut table = BoundedTable::new(10);
    let kept = |it: &usize| (*it >= 5).then_some(*it);
    for number in 0..1_000 {
        assert!(table.insert(id(number), number, kept).is_some());
    }
    for number in 0..5 {
        assert_eq!(table.find(id(number)).map(|at| table[at]), Some(number));
    }
    assert!(table.insert(id(1_000), 1_000, |_| None::<usize>).is_none());
    assert_eq!(table.len(), 10);
}

#[test]
fn entry_that_may_go_is_found_among_many_that_have_to_stay() {
    let mut table = BoundedTable::new(500);
    let kept = |it: &usize| (*it == 123 || *it >= 500).then_some(*it);
    for number in 0..510 {
        assert!(table.insert(id(number), number, kept).is_some(), "{number}");
    }
    assert!(table.find(id(123)).is_none());
    for number in (0..500).filter(|number| *number != 123) {
        assert!(table.find(id(number)).is_some(), "{number}");
    }
}

#[test]
fn list_of_what_has_to_be_told_is_bounded_while_nobody_can_be_told() {
    let mut table = BoundedTable::new(100);
    for number in 0..50_000 {
        let at = add(&mut table, number).expect("room").at;
        table.mark_dirty(at);
        assert!(table.dirty.len() <= 200, "{}", table.dirty.len());
    }
    assert_eq!(table.take_dirty(usize::MAX).len(), 100, "nothing of what is there is lost");
    assert!(table.take_dirty(usize::MAX).is_empty(), "told once");
}

#[test]
fn entry_that_made_room_and_came_back_is_told_once() {
    let mut table = BoundedTable::new(1);
    for number in [1, 2, 1] {
        let at = add(&mut table, number).expect("room").at;
        table.mark_dirty(at);
    }
    let taken = table.take_dirty(usize::MAX);
    assert_eq!(taken.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [id(1)]);
}
