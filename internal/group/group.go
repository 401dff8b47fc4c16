// Package group groups values by key, in the order in which the keys first appear.
package group

// By are values by key. A map alone would give them in another order each time, and pages, messages and files that are
// made of the same input have to be equal. The zero value is empty.
type By[K comparable, V any] struct {
	Keys []K // for reading: each once, in the order in which it was first added
	of   map[K][]V
}

// Add adds a value to those of a key.
func (g *By[K, V]) Add(key K, value V) {
	if g.of == nil {
		g.of = map[K][]V{}
	}
	if _, met := g.of[key]; !met {
		g.Keys = append(g.Keys, key)
	}
	g.of[key] = append(g.of[key], value)
}

// A List is values in the order in which their keys were met, each found by its key. The zero value is empty.
type List[K comparable, V any] struct {
	All []V // for reading
	at  map[K]int
}

// At returns the value of a key, which is first where the key was not met before. It holds until the next call.
func (l *List[K, V]) At(key K, first V) *V {
	i, met := l.at[key]
	if !met {
		if l.at == nil {
			l.at = map[K]int{}
		}
		i = len(l.All)
		l.at[key], l.All = i, append(l.All, first)
	}
	return &l.All[i]
}

// Of returns the values of a key in the order in which they were added; none where the key was never met.
func (g *By[K, V]) Of(key K) []V { return g.of[key] }
