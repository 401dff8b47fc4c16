package live

import (
	"context"
	"fmt"
	"log"
	"runtime/debug"
	"sync"
	"time"
)

// A reading is a value that takes time to get, for any number of readers: it is read once for all
// that ask at the same time, again only after a while, and no reader waits longer than the limit. A
// read that hangs keeps one goroutine, however often it is asked for.
type reading[T any] struct {
	read  func(context.Context) (T, error)
	fresh time.Duration // how long a value serves
	limit time.Duration // how long readers wait
	now   func() time.Time

	mu     sync.Mutex
	flight *flight[T] // nil: no read is under way
	last   *flight[T] // nil: never read
}

// newReading returns a reading that has not been read.
func newReading[T any](o Options, fresh, limit time.Duration, read func(context.Context) (T, error)) *reading[T] {
	return &reading[T]{read: read, fresh: fresh, limit: limit, now: o.Now}
}

// A flight is one read.
type flight[T any] struct {
	began time.Time
	done  chan struct{} // closed at its end; what follows is set by then
	value T
	err   error
	at    time.Time
}

// get returns the value and when it was read.
func (r *reading[T]) get(ctx context.Context) (T, time.Time, error) {
	f := r.join()
	// From the beginning of the read: who comes while it hangs does not wait all over again.
	late := time.NewTimer(r.limit - r.now().Sub(f.began))
	defer late.Stop()
	var none T
	select {
	case <-f.done: // also where the limit has passed since
		return f.value, f.at, f.err
	default:
	}
	select {
	case <-f.done:
		return f.value, f.at, f.err
	case <-ctx.Done():
		return none, time.Time{}, context.Cause(ctx)
	case <-late.C:
		return none, time.Time{}, fmt.Errorf("no answer within %v", r.limit)
	}
}

// join returns the read that serves a reader who comes now: the last one, one under way or a new one.
func (r *reading[T]) join() *flight[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flight != nil {
		return r.flight
	}
	// An error serves as long as a value: what fails is not asked again by every reader at once.
	if r.last != nil && r.now().Sub(r.last.at) < r.fresh {
		return r.last
	}
	f := &flight[T]{began: r.now(), done: make(chan struct{})}
	r.flight = f
	go func() {
		// Not the context of the first reader: others wait too.
		ctx, cancel := context.WithTimeout(context.Background(), r.limit)
		defer cancel()
		value, err := guarded(ctx, r.read)
		r.mu.Lock()
		defer r.mu.Unlock()
		f.value, f.err, f.at = value, err, r.now()
		r.flight, r.last = nil, f
		close(f.done)
	}()
	return f
}

// guarded reads, and makes an error of a panic: what is wrong in one reader of one file must not end the server, and
// with it the pages of everything else.
func guarded[T any](ctx context.Context, read func(context.Context) (T, error)) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault(p)
		}
	}()
	return read(ctx)
}

// fault makes an error of what a panic said, and writes to the log where it came from.
func fault(p any) error {
	log.Printf("%v\n%s", p, debug.Stack())
	return fmt.Errorf("this is a fault of rackless, please report it: %v", p)
}

// A shelf has a reading for each of some names.
type shelf[T any] struct {
	make func(name string) *reading[T]

	mu  sync.Mutex
	all map[string]*reading[T]
}

// get returns what is read of a name. The shelf is locked only to find the reading, not while it reads.
func (s *shelf[T]) get(ctx context.Context, name string) (T, time.Time, error) {
	s.mu.Lock()
	r := s.all[name]
	if r == nil {
		r = s.make(name)
		if s.all == nil {
			s.all = make(map[string]*reading[T])
		}
		s.all[name] = r
	}
	s.mu.Unlock()
	return r.get(ctx)
}

// keep forgets all names but these, so that the shelf does not grow with every lab that ever was.
func (s *shelf[T]) keep(has func(name string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.all {
		if !has(name) {
			delete(s.all, name)
		}
	}
}
