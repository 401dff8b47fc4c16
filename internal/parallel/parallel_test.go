package parallel

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

func TestResultsComeInTheOrderOfTheJobs(t *testing.T) {
	t.Parallel()
	var jobs, got []int
	for i := range 100 {
		jobs = append(jobs, i)
	}
	err := InOrder(t.Context(), jobs, func(_ context.Context, i int) int {
		time.Sleep(time.Duration(i%7) * 100 * time.Microsecond) // so that later jobs end earlier
		return i
	}, func(i int) error {
		got = append(got, i)
		return nil
	})
	if err != nil || !slices.Equal(got, jobs) {
		t.Errorf("got %v, %v", got, err)
	}
	if err := InOrder(t.Context(), nil, func(context.Context, int) int { return 0 }, nil); err != nil {
		t.Errorf("no jobs: %v", err)
	}
}

func TestTheFirstErrorStopsIt(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	used := 0
	err := InOrder(t.Context(), make([]int, 1000), func(context.Context, int) int { return 0 }, func(int) error {
		used++
		if used == 3 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || used != 3 {
		t.Errorf("got %v after %d", err, used)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := InOrder(ctx, []int{1}, func(ctx context.Context, _ int) error {
		<-ctx.Done()
		return ctx.Err()
	}, func(err error) error { return err }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
