// Package parallel runs jobs at the same time.
package parallel

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// Each calls f for all items concurrently, and joins the errors.
func Each[T any](items []T, f func(T) error) error {
	errs := make([]error, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() { errs[i] = f(item) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// InOrder passes results to use in the order of the jobs. It stops at the first error of use and when ctx is done.
func InOrder[J, R any](ctx context.Context, jobs []J, do func(context.Context, J) R, use func(R) error) error {
	return InOrderBy(ctx, runtime.GOMAXPROCS(0), jobs, do, use)
}

// InOrderBy has a given number of workers, for jobs that wait more than they compute.
func InOrderBy[J, R any](ctx context.Context, workers int, jobs []J, do func(context.Context, J) R,
	use func(R) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workers = min(workers, len(jobs))
	// Workers are ahead by only a few jobs per core, because unused results take memory.
	tickets := make(chan struct{}, 4*workers)
	results := make([]chan R, len(jobs))
	for i := range results {
		results[i] = make(chan R, 1)
	}
	next := make(chan int)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	wg.Go(func() {
		defer close(next)
		for i := range jobs {
			select {
			case tickets <- struct{}{}:
			case <-ctx.Done():
				return
			}
			next <- i
		}
	})
	// After an error of use, workers still finish their current job.
	for range workers {
		wg.Go(func() {
			for i := range next {
				results[i] <- do(ctx, jobs[i])
			}
		})
	}
	for _, r := range results {
		select {
		case v := <-r:
			<-tickets
			if err := use(v); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
