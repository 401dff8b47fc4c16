package fabric

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

func TestNextFrame(t *testing.T) {
	shortest := framed(make([]byte, minFrame))
	tests := []struct {
		name    string
		in      []byte
		want    int
		wantErr string
	}{
		{"nothing", nil, 0, ""},
		{"a part of a prefix", []byte{0, 0, 0}, 0, ""},
		{"a prefix alone", []byte{0, 0, 0, minFrame}, 0, ""},
		{"one byte too few", shortest[:len(shortest)-1], 0, ""},
		{"the shortest frame", shortest, prefixLen + minFrame, ""},
		{"the longest frame", framed(make([]byte, MaxFrame)), prefixLen + MaxFrame, ""},
		{"two frames", append(bytes.Clone(shortest), shortest...), prefixLen + minFrame, ""},
		{"zero", []byte{0, 0, 0, 0}, 0, "length prefix 0 is outside 14..16384 bytes"},
		{"less than a header", framed(make([]byte, minFrame-1)), 0, "length prefix 13 is outside"},
		{"too long", []byte{0, 0, 0x40, 1}, 0, "length prefix 16385 is outside"},
		{"little-endian", []byte{64, 0, 0, 0}, 0, "length prefix 1073741824 is outside"},
		{"negative as a signed number", []byte{0xff, 0xff, 0xff, 0xff}, 0, "length prefix 4294967295 is outside"},
		{"another protocol", []byte("GET / HTTP/1.1"), 0, "length prefix 1195725856 is outside"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := nextFrame(tt.in)
			if got != tt.want || (err == nil) != (tt.wantErr == "") || err != nil && !strings.HasPrefix(err.Error(),
				tt.wantErr) {
				t.Errorf("got %d, %v; want %d, %q", got, err, tt.want, tt.wantErr)
			}
		})
	}
}

func TestParseHeader(t *testing.T) {
	got := parseHeader(frame(0x01_02_03_04_05_06, 0xf1_f2_f3_f4_f5_f6, minFrame, 0))
	if want := (header{0x01_02_03_04_05_06, 0xf1_f2_f3_f4_f5_f6}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := got.src.String(), "f1:f2:f3:f4:f5:f6"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !got.dst.group() || station(1).group() || !broadcast.group() {
		t.Error("group addresses are not told from others")
	}
}

// FuzzFrames compares pieces, as in conn.receive, with a parser of the whole.
func FuzzFrames(f *testing.F) {
	f.Add(framed(make([]byte, 14), make([]byte, 60)), uint8(1))
	f.Add(framed(make([]byte, 64))[:30], uint8(7))
	f.Add([]byte("GET / HTTP/1.1\r\n"), uint8(3))
	f.Add(append(framed(make([]byte, 20)), 0, 0, 0, 13), uint8(5))
	f.Fuzz(func(t *testing.T, stream []byte, step uint8) {
		var want [][]byte
		bad := false
		for rest := stream; len(rest) >= 4; {
			n := uint64(binary.BigEndian.Uint32(rest))
			if bad = n < minFrame || n > MaxFrame; bad || uint64(len(rest)) < 4+n {
				break
			}
			want = append(want, rest[4:4+n])
			rest = rest[4+n:]
		}

		var got [][]byte
		var partial []byte
		gotBad := false
		for rest := stream; len(rest) > 0 && !gotBad; {
			n := min(int(step)+1, len(rest))
			buf := append(bytes.Clone(partial), rest[:n]...)
			rest = rest[n:]
			for {
				n, err := nextFrame(buf)
				gotBad = err != nil
				if n == 0 {
					break
				}
				got = append(got, buf[prefixLen:n])
				buf = buf[n:]
			}
			partial = buf
			if len(partial) >= prefixLen+MaxFrame {
				t.Fatalf("%d bytes kept: a whole frame fits", len(partial))
			}
		}
		if gotBad != bad || len(got) != len(want) {
			t.Fatalf("got %d frames, bad %v; want %d, %v", len(got), gotBad, len(want), bad)
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("frame %d: got %x, want %x", i, got[i], want[i])
			}
		}
	})
}
