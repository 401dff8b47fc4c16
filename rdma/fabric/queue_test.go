package fabric

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestPropertyQueueIsAStreamOfBytes(t *testing.T) {
	pool := &chunks{}
	rapid.Check(t, func(t *rapid.T) {
		q := queue{pool: pool}
		var stream []byte
		var ends []int // from the start of the stream
		var sizes []int
		tag := uint32(0)
		push := func(b []byte, size int) {
			q.push(b, size)
			stream = append(stream, b...)
			ends = append(ends, len(stream))
			sizes = append(sizes, size)
		}
		if rapid.Bool().Draw(t, "starts within a frame") {
			f := framed(frame(0, 0, 5000, 9))
			push(f[rapid.IntRange(1, len(f)-1).Draw(t, "sent"):], 5000)
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				tag++
				size := rapid.OneOf(rapid.IntRange(minFrame, 200), rapid.Just(MaxFrame)).Draw(t, "size")
				push(framed(frame(1, 2, size, tag)), size)
			},
			"advance": func(t *rapid.T) {
				n := rapid.IntRange(0, len(stream)).Draw(t, "n")
				var all []byte
				for _, c := range q.list {
					all = append(all, c.data[c.sent:]...)
				}
				if !bytes.Equal(all, stream) {
					t.Fatalf("queue holds %d bytes, want %d, or they differ", len(all), len(stream))
				}
				wantFrames, wantBytes := uint64(0), uint64(0)
				for len(ends) > 0 && ends[0] <= n {
					wantFrames++
					wantBytes += uint64(sizes[0])
					ends, sizes = ends[1:], sizes[1:]
				}
				for i := range ends {
					ends[i] -= n
				}
				stream = stream[n:]
				if frames, size := q.advance(n); frames != wantFrames || size != wantBytes {
					t.Fatalf("advance(%d) = %d, %d; want %d, %d", n, frames, size, wantFrames, wantBytes)
				}
			},
			"": func(t *rapid.T) {
				if q.bytes != len(stream) || q.frames != len(ends) || q.empty() != (len(stream) == 0) {
					t.Fatalf("%d bytes in %d frames, want %d in %d", q.bytes, q.frames, len(stream), len(ends))
				}
			},
		})
		if got := q.clear(); got != uint64(len(ends)) || !q.empty() {
			t.Fatalf("clear() = %d, want %d", got, len(ends))
		}
	})
	if len(pool.free) > maxFreeChunks {
		t.Errorf("%d chunks kept, want at most %d", len(pool.free), maxFreeChunks)
	}
}
