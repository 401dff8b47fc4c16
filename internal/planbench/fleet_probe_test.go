package main

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan/fleet"
)

func TestProbeFleet(t *testing.T) {
	if os.Getenv("PROBE") == "" {
		t.Skip("probe")
	}
	for _, policy := range []string{fleet.BestFit, fleet.Nova} {
		f, err := fleet.New(policy)
		if err != nil {
			t.Fatal(err)
		}
		h, err := largeHost()
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for i := range 1000 {
			if err := f.Add(fmt.Sprintf("h%03d", i), h); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Println("add", time.Since(start))
		var times []time.Duration
		var refused, searched int
		var cost, over int64
		start = time.Now()
		for i := range 10000 {
			line, _ := request(i)
			l, err := lab.Parse("r", []byte(line))
			if err != nil {
				t.Fatal(err)
			}
			t0 := time.Now()
			p, err := f.Place(t.Context(), l)
			times = append(times, time.Since(t0))
			if err != nil {
				if refused == 0 {
					fmt.Println(err)
				}
				refused++
				continue
			}
			searched += p.Searched
			cost += p.Cost
			over += p.Cost - p.Ideal
			if time.Since(start) > 200*time.Second {
				fmt.Println("stopped at", i)
				break
			}
		}
		all := time.Since(start)
		slices.Sort(times)
		c, err := f.Count(t.Context())
		fmt.Printf("%+v refused %d searched %d cost %d over %d all %v p50 %v p99 %v max %v %v\n", c, refused, searched, cost, over, all, times[len(times)/2], times[len(times)*99/100], times[len(times)-1], err)
	}
}
