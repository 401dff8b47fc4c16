// Package lists has functions that package slices lacks. They return nil instead of an empty list.
package lists

import (
	"cmp"
	"maps"
	"slices"
)

// Map returns the results of f for each value.
func Map[E, T any](all []E, f func(E) T) []T {
	var out []T
	for _, x := range all {
		out = append(out, f(x))
	}
	return out
}

// Filter returns a new list of the values that keep accepts.
func Filter[E any](all []E, keep func(E) bool) []E {
	var out []E
	for _, x := range all {
		if keep(x) {
			out = append(out, x)
		}
	}
	return out
}

// Lookup returns the first value that matches; ok is false without one.
func Lookup[E any](all []E, is func(E) bool) (x E, ok bool) {
	for _, x := range all {
		if is(x) {
			return x, true
		}
	}
	return x, false
}

// Find returns the first value that matches, or the zero value.
func Find[E any](all []E, is func(E) bool) E {
	x, _ := Lookup(all, is)
	return x
}

// Where returns the indexes of matching values.
func Where[E any](all []E, is func(E) bool) []int {
	var out []int
	for i, x := range all {
		if is(x) {
			out = append(out, i)
		}
	}
	return out
}

// Count returns the number of matching values.
func Count[E any](all []E, is func(E) bool) (n int) {
	for _, x := range all {
		if is(x) {
			n++
		}
	}
	return n
}

type number interface {
	~int | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float64
}

// Sum adds up the results of f.
func Sum[E any, N number](all []E, f func(E) N) (sum N) {
	for _, x := range all {
		sum += f(x)
	}
	return sum
}

// Max returns the largest result of f, or 0 if none is larger.
func Max[E any, N number](all []E, f func(E) N) (most N) {
	for _, x := range all {
		most = max(most, f(x))
	}
	return most
}

// SetOf returns a set of the results of f.
func SetOf[E any, K comparable](all []E, f func(E) K) map[K]bool {
	out := make(map[K]bool, len(all))
	for _, x := range all {
		out[f(x)] = true
	}
	return out
}

// By maps keys to values; for the same key the last one wins.
func By[E any, K comparable](all []E, key func(E) K) map[K]E {
	out := make(map[K]E, len(all))
	for _, x := range all {
		out[key(x)] = x
	}
	return out
}

// InOrder returns the values in the order of their keys.
func InOrder[K cmp.Ordered, V any](all map[K]*V) []V {
	return Map(Keys(all), func(key K) V { return *all[key] })
}

// Flat concatenates the lists that f returns.
func Flat[E, T any](all []E, f func(E) []T) []T { return slices.Concat(Map(all, f)...) }

// Ref returns the address of the first match, or nil.
func Ref[E any](all []E, is func(*E) bool) *E {
	for i := range all {
		if is(&all[i]) {
			return &all[i]
		}
	}
	return nil
}

// Distinct sorts a list in place and drops duplicates.
func Distinct[E cmp.Ordered](all []E) []E {
	slices.Sort(all)
	return slices.Compact(all)
}

// Keys returns the keys of a map, sorted.
func Keys[K cmp.Ordered, V any](all map[K]V) []K { return slices.Sorted(maps.Keys(all)) }

// Add appends a value, unless the list contains it.
func Add[E comparable](all []E, x E) []E {
	if slices.Contains(all, x) {
		return all
	}
	return append(all, x)
}
