package plantest

// A Rand is a source of random numbers that depends only on its seed (splitmix64, Steele et al. 2014).
type Rand struct{ x uint64 }

// NewRand returns a source for a seed.
func NewRand(seed uint64) *Rand { return &Rand{seed} }

func (r *Rand) next() uint64 {
	r.x += 0x9e3779b97f4a7c15
	z := r.x
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Intn returns a number from 0 to n-1. n is at least 1.
func (r *Rand) Intn(n int) int { return int(r.next() % uint64(n)) }

// In returns a number from low to high, both included.
func (r *Rand) In(low, high int) int { return low + r.Intn(high-low+1) }

// Chance returns true with a probability of percent.
func (r *Rand) Chance(percent int) bool { return r.Intn(100) < percent }

// Pick returns one of the values.
func Pick[T any](r *Rand, values ...T) T { return values[r.Intn(len(values))] }
