//! Lookup of an address among many networks.
//!
//! Two networks are nested or disjoint, so the address space divides into intervals in which all addresses are in the
//! same networks. A lookup is one binary search for the interval, for any number and nesting of networks.

use std::cmp::Reverse;
use std::net::IpAddr;

/// Values of address intervals, computed from networks.
#[derive(Clone, Debug)]
pub struct NetworkTable<T> {
    v4: IntervalTable<u32, T>,
    v6: IntervalTable<u128, T>,
}

/// Start of each interval, and its value. The last interval ends with the address space.
#[derive(Clone, Debug)]
struct IntervalTable<A, T> {
    starts: Vec<A>,
    values: Vec<T>,
}

impl<T: PartialEq> NetworkTable<T> {
    /// Builds the table from the first and last address of each network, with its item. `value` receives the items of
    /// all networks that contain an interval, the widest network first.
    pub fn new<I: Copy + Ord>(
        networks: impl IntoIterator<Item = ((IpAddr, IpAddr), I)>,
        mut value: impl FnMut(&[I]) -> T,
    ) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (bounds, item) in networks {
            match bounds {
                (IpAddr::V4(first), IpAddr::V4(last)) => v4.push((first.to_bits(), Reverse(last.to_bits()), item)),
                (IpAddr::V6(first), IpAddr::V6(last)) => v6.push((first.to_bits(), Reverse(last.to_bits()), item)),
                _ => debug_assert!(false, "bounds of two address families"),
            }
        }
        Self {
            v4: IntervalTable::new(v4, |address| address.checked_add(1), &mut value),
            v6: IntervalTable::new(v6, |address| address.checked_add(1), &mut value),
        }
    }
}

impl<T> NetworkTable<T> {
    /// Returns the value of the interval that contains `address`, or `None` before the first network.
    pub fn get(&self, address: IpAddr) -> Option<&T> {
        match address {
            IpAddr::V4(address) => self.v4.get(address.to_bits()),
            IpAddr::V6(address) => self.v6.get(address.to_bits()),
        }
    }
}

impl<A: Copy + Ord, T> IntervalTable<A, T> {
    /// Walks over the sorted networks and keeps a stack of those that contain the current address.
    fn new<I: Copy + Ord>(
        mut networks: Vec<(A, Reverse<A>, I)>,
        next: fn(A) -> Option<A>,
        value: &mut impl FnMut(&[I]) -> T,
    ) -> Self
    where
        T: PartialEq,
    {
        networks.sort_unstable();
        // Without duplicates, the stack is bounded by the prefix lengths times the number of items.
        networks.dedup();
        let mut table = Self { starts: Vec::new(), values: Vec::new() };
        let (mut ends, mut items) = (Vec::new(), Vec::new());
        for (first, Reverse(last), item) in networks {
            while let Some(end) = ends.pop_if(|end| *end < first) {
                items.pop();
                if let Some(start) = next(end) {
                    table.push_interval(start, value(&items));
                }
            }
            ends.push(last);
            items.push(item);
            table.push_interval(first, value(&items));
        }
        while let Some(end) = ends.pop() {
            items.pop();
            if let Some(start) = next(end) {
                table.push_interval(start, value(&items));
            }
        }
        table
    }

    /// Starts an interval, or replaces the value of the interval that starts there.
    fn push_interval(&mut self, start: A, value: T)
    where
        T: PartialEq,
    {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.values.pop();
        }
        if self.values.last() != Some(&value) {
            self.starts.push(start);
            self.values.push(value);
        }
    }

    fn get(&self, address: A) -> Option<&T> {
        let index = self.starts.partition_point(|start| *start <= address).checked_sub(1)?;
        Some(&self.values[index])
    }
}

impl<T> Default for NetworkTable<T> {
    fn default() -> Self {
        let (v4, v6) = (IntervalTable::default(), IntervalTable::default());
        Self { v4, v6 }
    }
}

impl<A, T> Default for IntervalTable<A, T> {
    fn default() -> Self {
        Self { starts: Vec::new(), values: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_networks_do_not_deepen_the_stack() {
        let everything = (IpAddr::from([0, 0, 0, 0]), IpAddr::from([255, 255, 255, 255]));
        let network = (IpAddr::from([192, 0, 2, 0]), IpAddr::from([192, 0, 2, 255]));
        let networks = std::iter::repeat_n([(everything, 1), (network, 2), (network, 1)], 10_000).flatten();
        let mut max_depth = 0;
        let table = NetworkTable::new(networks, |items| {
            max_depth = max_depth.max(items.len());
            items.to_vec()
        });
        assert_eq!(max_depth, 3);
        assert_eq!(table.get(IpAddr::from([192, 0, 2, 7])), Some(&vec![1, 1, 2]));
        assert_eq!(table.get(IpAddr::from([192, 0, 3, 0])), Some(&vec![1]));
        assert_eq!(table.get(IpAddr::from([0; 16])), None);
    }
}
