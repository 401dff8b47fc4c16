package lists_test

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/lists"
)

func TestLists(t *testing.T) {
	t.Parallel()
	type node struct {
		name string
		cpus int
	}
	all := []node{{"a", 2}, {"b", 4}, {"c", 3}, {"b", 1}}
	name := func(n node) string { return n.name }
	big := func(n node) bool { return n.cpus > 2 }
	cpus := func(n node) int { return n.cpus }
	found, ok := lists.Lookup(all, big)
	_, none := lists.Lookup(all[:1], big)
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"what a function makes of each", lists.Map(all, name), []string{"a", "b", "c", "b"}},
		{"of none nothing is made", lists.Map(nil, strconv.Itoa), []string(nil)},
		{"those that are chosen", lists.Filter([]int{1, 2, 3, 4}, func(n int) bool { return n%2 == 0 }), []int{2, 4}},
		{"none is chosen", lists.Filter([]int{1}, func(int) bool { return false }), []int(nil)},
		{"the first of several", found.name, "b"},
		{"it is found", ok, true},
		{"nothing is found", none, false},
		{"the first, or nothing", lists.Find(all, func(n node) bool { return n.name == "c" }).cpus, 3},
		{"the zero value of none", lists.Find(all[:1], big).name, ""},
		{"where those are that are chosen", lists.Where(all, big), []int{1, 2}},
		{"the address of the first", lists.Ref(all, func(n *node) bool { return n.cpus > 2 }) == &all[1], true},
		{"no address", lists.Ref(all, func(n *node) bool { return n.cpus > 9 }) == nil, true},
		{"a number of values", lists.Count(all, big), 2},
		{"a sum", lists.Sum(all, cpus), 10},
		{"the largest", lists.Max(all, cpus), 4},
		{"the largest of none", lists.Max(nil, cpus), 0},
		{"a set of what a function makes", lists.SetOf(all, name), map[string]bool{"a": true, "b": true, "c": true}},
		{"the last of those with one key", lists.By(all, name)["b"].cpus, 1},
		{"lists made one", lists.Flat([]int{1, 2}, func(n int) []int { return []int{n, -n} }), []int{1, -1, 2, -2}},
		{"each value once, sorted", lists.Distinct([]int{3, 1, 3, 2, 1}), []int{1, 2, 3}},
		{"a value that is new", lists.Add([]int{1, 2}, 3), []int{1, 2, 3}},
		{"a value that is there", lists.Add([]int{1, 2}, 2), []int{1, 2}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: -want +got\n%s", c.what, diff)
		}
	}
}
