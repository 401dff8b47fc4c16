package vm

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestSharedMemoryIsACopyOfWhatHoldsData(t *testing.T) {
	const size = 8 << 20
	path := filepath.Join(t.TempDir(), "ram")
	template, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer template.Close()
	if err := template.Truncate(size); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, size)
	for _, at := range []int{0, 4 << 20, size - 4096} {
		copy(want[at:], bytes.Repeat([]byte{byte(at>>20) + 1}, 4096))
		if _, err := template.WriteAt(want[at:at+4096], int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := NewSharedMemory(path, size)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, size)
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("not the contents of the template, %v", err)
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil || st.Size != size || st.Blocks*512 > 1<<20 {
		t.Errorf("%d bytes on %d blocks, %v", st.Size, st.Blocks, err)
	}
	if err := template.Truncate(size / 2); err != nil {
		t.Fatal(err)
	}
	if f, err := NewSharedMemory(path, size); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	if _, err := NewSharedMemory(path+"x", size); err == nil {
		t.Error("no error without a template")
	}
}
