package gpu

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rackless/rackless/rdma/vfiouser/vfiousertest"
)

// rubbish is the least duration of TestHostileGuests. make test-faults uses a minute.
var rubbish = flag.Duration("rubbish", 0, "how long TestHostileGuests lasts at least")

// Random data in registers and on the socket disturbs neither the GPU of another guest nor NICs.
func TestHostileGuests(t *testing.T) {
	quiet := newGuest(t, Config{Name: "quiet"})
	quiet.boot()
	bad, strange := &vandal{guest: newGuest(t, Config{Name: "bad"})}, newGuest(t, Config{Name: "strange"})
	bad.boot()
	plain := newGuest(t, Config{Name: "plain", Personality: VFIO})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	attack := func(once func(r *rand.Rand)) {
		seed := rand.Uint64()
		t.Logf("seed %#x", seed)
		r := rand.New(rand.NewPCG(seed, 1))
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					once(r)
				}
			}
		})
	}
	attack(bad.once)
	attack(func(r *rand.Rand) { vfiousertest.Vandal(strange.g.cfg.Socket, bar0Size, r) })
	attack(func(r *rand.Rand) { vfiousertest.Vandal(plain.g.cfg.Socket, bar0Size, r) })
	attack(func(r *rand.Rand) {
		addr, size := r.Uint64()>>r.IntN(64), r.Uint64()>>r.IntN(64)
		for _, g := range []*GPU{bad.g, strange.g, plain.g} {
			if b := g.VRAM(addr, size); b != nil && uint64(len(b)) != size {
				t.Errorf("%#x+%#x: %d bytes", addr, size, len(b))
			}
			g.Status()
		}
	})
	end := time.Now().Add(*rubbish)
	for n := uint64(0); n < 500 || time.Now().Before(end); n++ {
		at := n % 100 * pageSize
		quiet.blob(1, pageSize, at)
		b := quiet.g.VRAM(vramAt+at, 8)
		if b == nil || le.Uint64(b) != 0 {
			t.Fatalf("round %d: VRAM is %x", n, b)
		}
		le.PutUint64(b, ^n)
		if a := quiet.command(cmdUnref, 0, 1, 0); a != respOK {
			t.Fatalf("round %d: answer %#x", n, a)
		}
	}
	close(stop)
	wg.Wait()
	bad.check()
	strange.check()
	plain.check()
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 256<<20 {
		t.Errorf("the hostile guests have made the server take %d MiB", m.HeapAlloc>>20)
	}
}

func TestAPanicEndsOneConnection(t *testing.T) {
	var mu sync.Mutex
	var log strings.Builder
	x := newGuest(t, Config{Log: func(f string, a ...any) {
		mu.Lock()
		defer mu.Unlock()
		log.WriteString(f)
	}})
	x.boot()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		x.g.mu.Lock()
		x.g.memory.contexts = nil // a write to it panics
		x.g.mu.Unlock()
		x.command(cmdCtxCreate, 1)
	}()
	x.d.Disconnected()
	x.d.Connected()
	x.boot()
	if a := x.command(cmdCtxCreate, 1); a != respOK {
		t.Errorf("answer %#x", a)
	}
}
