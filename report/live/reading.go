package live

import (
	"context"
	"fmt"
	"log"
	"runtime/debug"
	"sync"
	"time"
)

// A reading caches a value. Readers share one read, and none waits longer than the limit. A hanging read uses one
// goroutine.
type reading[T any] struct {
	read  func(context.Context) (T, error)
	fresh time.Duration // how long a value is reused
	limit time.Duration // how long readers wait
	now   func() time.Time

	mu     sync.Mutex
	flight *flight[T] // nil if no read is in progress
	last   *flight[T] // nil if never read
}

func newReading[T any](o Options, fresh, limit time.Duration, read func(context.Context) (T, error)) *reading[T] {
	return &reading[T]{read: read, fresh: fresh, limit: limit, now: o.Now}
}

type flight[T any] struct {
	began time.Time
	done  chan struct{} // closed when the fields below are set
	value T
	err   error
	at    time.Time
}

func (r *reading[T]) get(ctx context.Context) (T, time.Time, error) {
	f := r.join()
	// The limit counts from the start of the read, so that no reader of a hanging read waits for a full limit again.
	late := time.NewTimer(r.limit - r.now().Sub(f.began))
	defer late.Stop()
	var none T
	select {
	case <-f.done: // also if the limit has already passed
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

// join returns the last read if fresh, the one in progress, or a new one.
func (r *reading[T]) join() *flight[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flight != nil {
		return r.flight
	}
	// Readers must not all read a failing source again.
	if r.last != nil && r.now().Sub(r.last.at) < r.fresh {
		return r.last
	}
	f := &flight[T]{began: r.now(), done: make(chan struct{})}
	r.flight = f
	go func() {
		// The first reader may go, but others wait too.
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

// guarded turns a panic into an error, which does not end the server.
func guarded[T any](ctx context.Context, read func(context.Context) (T, error)) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault(p)
		}
	}()
	return read(ctx)
}

func fault(p any) error {
	log.Printf("%v\n%s", p, debug.Stack())
	return fmt.Errorf("this is a fault of rackless, please report it: %v", p)
}

type shelf[T any] struct {
	make func(name string) *reading[T]

	mu  sync.Mutex
	all map[string]*reading[T]
}

// get does not lock the shelf during the read.
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

// keep stops the shelf from growing with every lab that ever existed.
func (s *shelf[T]) keep(has func(name string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.all {
		if !has(name) {
			delete(s.all, name)
		}
	}
}
