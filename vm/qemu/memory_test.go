package qemu

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBlocks(t *testing.T) {
	for _, tt := range []struct {
		memory, image int64 // in MiB
		want          string
	}{
		{256, 73, "16 2*26 28 4*18 88"},
		{512, 73, "16 2*26 280 4*18 92"},
		{128, 73, "128"}, // too little to boot
		{4096, 73, "4096"},
	} {
		var got []string
		sum := int64(0)
		all := blocks(tt.memory*mib, tt.image*mib)
		for i, n := 0, 0; i < len(all); i++ {
			sum += all[i].Bytes
			if n++; i == len(all)-1 || all[i+1].Bytes != all[i].Bytes {
				w := fmt.Sprint(all[i].Bytes / mib)
				if n > 1 {
					w += fmt.Sprintf("*%d", n)
				}
				got, n = append(got, w), 0
			}
			if !all[i].Shared {
				t.Errorf("%d MiB: block %d is not shared before its pages are known", tt.memory, i)
			}
		}
		if got := strings.Join(got, " "); got != tt.want || sum != tt.memory*mib {
			t.Errorf("%d MiB: blocks of %s MiB, want %s, %d bytes in all", tt.memory, got, tt.want, sum)
		}
	}
}

// Adapters access all other blocks.
func TestColdBlocks(t *testing.T) {
	const page = 4096
	kinds := map[byte]uint64{'.': pageFree, 'k': 0, 'R': pageReserved, 'F': pageUnevictable, '-': pageNone}
	for pages, want := range map[string]bool{
		strings.Repeat("R", 100):                          false,
		strings.Repeat("F", 99) + "-":                     false,
		strings.Repeat("F", 98) + "kk":                    false, // file tables
		strings.Repeat("F", 97) + "kkk":                   true,
		strings.Repeat("R", 99) + ".":                     true, // may be allocated
		strings.Repeat("k", 100):                          true,
		strings.Repeat("R", 50) + strings.Repeat("F", 50): false,
		strings.Repeat("R", 99):                           true,
	} {
		flags := make([]uint64, 100, 200) // flags of an earlier block
		for i := range len(pages) {
			flags = append(flags, kinds[pages[i]])
		}
		all := []block{{Bytes: 100 * page, Shared: true}, {Bytes: 100 * page, Shared: true}}
		keepCold(all, flags, nil)
		if diff := cmp.Diff([]bool{true, want}, []bool{all[0].Shared, all[1].Shared}); diff != "" {
			t.Errorf("%s: shared (-want +got):\n%s", pages, diff)
		}
		keepCold(all, flags, [][]int64{nil, {7, 150 * page}})
		if !all[1].Shared {
			t.Errorf("%s: a block with a name is not shared", pages)
		}
	}
}
