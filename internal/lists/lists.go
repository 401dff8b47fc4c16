// Package lists has functions that package slices lacks: mapping, choosing, counting, and looking up.
//
// Functions return nil, not an empty list, where nothing is left.
package lists

import (
	"cmp"
	"maps"
	"slices"
)

// Map returns what f makes of each value.
func Map[E, T any](all []E, f func(E) T) []T {
	var out []T
	for _, x := range all {
		out = append(out, f(x))
	}
	return out
}

// Filter returns the values that keep reports true for, in a list of its own.
func Filter[E any](all []E, keep func(E) bool) []E {
	var out []E
	for _, x := range all {
		if keep(x) {
			out = append(out, x)
		}
	}
	return out
}

// Lookup returns the first value that is reports true for; ok is false if there is none.
func Lookup[E any](all []E, is func(E) bool) (x E, ok bool) {
	for _, x := range all {
		if is(x) {
			return x, true
		}
	}
	return x, false
}

// Find returns the first value that is reports true for, or the zero value.
func Find[E any](all []E, is func(E) bool) E {
	x, _ := Lookup(all, is)
	return x
}

// Where returns the indexes of the values that is reports true for.
func Where[E any](all []E, is func(E) bool) []int {
	var out []int
	for i, x := range all {
		if is(x) {
			out = append(out, i)
		}
	}
	return out
}

// Count returns how many values is reports true for.
func Count[E any](all []E, is func(E) bool) (n int) {
	for _, x := range all {
		if is(x) {
			n++
		}
	}
	return n
}

// A number can be added and compared.
type number interface {
	~int | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float64
}

// Sum adds up what f makes of each value.
func Sum[E any, N number](all []E, f func(E) N) (sum N) {
	for _, x := range all {
		sum += f(x)
	}
	return sum
}

// Max returns the largest of what f makes of each value, and at least 0.
func Max[E any, N number](all []E, f func(E) N) (most N) {
	for _, x := range all {
		most = max(most, f(x))
	}
	return most
}

// SetOf returns what f makes of each value as the keys of a map, for fast lookup.
func SetOf[E any, K comparable](all []E, f func(E) K) map[K]bool {
	out := make(map[K]bool, len(all))
	for _, x := range all {
		out[f(x)] = true
	}
	return out
}

// By returns the values under their keys. Of several with one key the last is there.
func By[E any, K comparable](all []E, key func(E) K) map[K]E {
	out := make(map[K]E, len(all))
	for _, x := range all {
		out[key(x)] = x
	}
	return out
}

// InOrder returns the values that a map points to, in the order of their keys.
func InOrder[K cmp.Ordered, V any](all map[K]*V) []V {
	return Map(Keys(all), func(key K) V { return *all[key] })
}

// Flat joins the lists that f makes of the values.
func Flat[E, T any](all []E, f func(E) []T) []T { return slices.Concat(Map(all, f)...) }

// Ref returns the address of the first value that is reports true for, or nil.
func Ref[E any](all []E, is func(*E) bool) *E {
	for i := range all {
		if is(&all[i]) {
			return &all[i]
		}
	}
	return nil
}

// Distinct sorts a list in its place and returns its values, each once.
func Distinct[E cmp.Ordered](all []E) []E {
	slices.Sort(all)
	return slices.Compact(all)
}

// Keys are the keys of a map, sorted.
func Keys[K cmp.Ordered, V any](all map[K]V) []K { return slices.Sorted(maps.Keys(all)) }

// Add appends a value that the list does not have yet.
func Add[E comparable](all []E, x E) []E {
	if slices.Contains(all, x) {
		return all
	}
	return append(all, x)
}
