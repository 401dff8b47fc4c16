// Package group groups values by key, in the order in which the keys first appear.
package group

// By avoids a map's random order: pages and files of the same input must be equal. The zero value is empty.
type By[K comparable, V any] struct {
	Keys []K // read only
	of   map[K][]V
}

// Add appends a value to the values of a key.
func (g *By[K, V]) Add(key K, value V) {
	if g.of == nil {
		g.of = map[K][]V{}
	}
	if _, met := g.of[key]; !met {
		g.Keys = append(g.Keys, key)
	}
	g.of[key] = append(g.of[key], value)
}

// A List holds one value for each key, in the order of first use.
type List[K comparable, V any] struct {
	All []V // read only
	at  map[K]int
}

// At adds first if the key is new. The pointer is valid until the next call.
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

// Of returns the values of a key, or nil.
func (g *By[K, V]) Of(key K) []V { return g.of[key] }
