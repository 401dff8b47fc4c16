package plantest

// A Rand depends only on its seed (splitmix64, Steele et al. 2014).
type Rand struct{ x uint64 }

// NewRand takes a seed.
func NewRand(seed uint64) *Rand { return &Rand{seed} }

func (r *Rand) next() uint64 {
	r.x += 0x9e3779b97f4a7c15
	z := r.x
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Intn is from 0 to n-1.
func (r *Rand) Intn(n int) int { return int(r.next() % uint64(n)) }

// In includes both ends.
func (r *Rand) In(low, high int) int { return low + r.Intn(high-low+1) }

// Chance is in percent.
func (r *Rand) Chance(percent int) bool { return r.Intn(100) < percent }

// Pick returns one value.
func Pick[T any](r *Rand, values ...T) T { return values[r.Intn(len(values))] }
