package image

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/xi2/xz"
)

// Offsets in a bzImage: Documentation/arch/x86/boot.rst.
const (
	setupSectsAt    = 0x1f1
	headerMagicAt   = 0x202
	versionAt       = 0x206
	payloadOffsetAt = 0x248
	payloadLengthAt = 0x24c
	minProtocol     = 0x0208 // the first with payload fields
)

// maxKernel is far above Debian's 60 MB.
const maxKernel = 512 << 20

// extractVmlinux returns the ELF kernel inside. QEMU starts one with a PVH note directly, which saves seconds of
// decompression on an emulated CPU.
func extractVmlinux(bzImage []byte) ([]byte, error) {
	le := binary.LittleEndian
	if len(bzImage) < 0x250 || string(bzImage[headerMagicAt:headerMagicAt+4]) != "HdrS" {
		return nil, errors.New("not an x86 bzImage: no HdrS at 0x202")
	}
	if v := le.Uint16(bzImage[versionAt:]); v < minProtocol {
		return nil, fmt.Errorf("boot protocol %#x is older than %#x and does not say where the kernel is", v,
			minProtocol)
	}
	sectors := int(bzImage[setupSectsAt])
	if sectors == 0 {
		// boot.rst: 0 means 4.
		sectors = 4
	}
	start := (sectors+1)*512 + int(le.Uint32(bzImage[payloadOffsetAt:]))
	length := int(le.Uint32(bzImage[payloadLengthAt:]))
	if start < 0 || length < 8 || start+length > len(bzImage) {
		return nil, fmt.Errorf("payload at %d with %d bytes does not fit in %d: truncated", start, length, len(bzImage))
	}
	payload := bzImage[start : start+length]
	if !bytes.HasPrefix(payload, gzipMagic) && !bytes.HasPrefix(payload, elfMagic) {
		// After xz and zstd the build appends the uncompressed size as four bytes (cmd_*_with_size in
		// scripts/Makefile.lib), which a decompressor would take for the next stream. gzip ends with its size.
		payload = payload[:len(payload)-4]
	}
	kernel, err := decompress(payload)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if !bytes.HasPrefix(kernel, elfMagic) {
		return nil, errors.New("what was inside is not an ELF kernel")
	}
	return kernel, nil
}

// Magic numbers of file formats.
var (
	elfMagic  = []byte("\x7fELF")
	gzipMagic = []byte{0x1f, 0x8b}
	xzMagic   = []byte{0xfd, '7', 'z', 'X', 'Z', 0}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// decompress returns the first stream of b. An ELF file is returned unchanged.
func decompress(b []byte) ([]byte, error) {
	var r io.Reader
	switch {
	case bytes.HasPrefix(b, elfMagic):
		return b, nil
	case bytes.HasPrefix(b, gzipMagic):
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		z.Multistream(false)
		r = z
	case bytes.HasPrefix(b, xzMagic):
		// The build filters code (BCJ); few decoders support that.
		z, err := xz.NewReader(bytes.NewReader(b), 0)
		if err != nil {
			return nil, err
		}
		z.Multistream(false)
		r = z
	case bytes.HasPrefix(b, zstdMagic):
		z, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderMaxMemory(maxKernel),
			zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		r = z
	default:
		return nil, fmt.Errorf("data that starts with % x is not gzip, xz or zstd", b[:min(6, len(b))])
	}
	out, err := io.ReadAll(io.LimitReader(r, maxKernel+1))
	if err == nil && len(out) > maxKernel {
		return nil, fmt.Errorf("more than %d MiB", maxKernel>>20)
	}
	return out, err
}

type moduleSet struct {
	dir  string              // ".../lib/modules/6.1.0-42-amd64"
	path map[string]string   // name with '_' for '-', to path below dir
	deps map[string][]string // path to paths, nearest first
	have map[string]bool     // built into the kernel
}

// readModules reads modules.dep and modules.builtin. An unpacked package has none, because its post-install script runs
// depmod; the modules' own records serve then.
func readModules(dir string) (*moduleSet, error) {
	s := &moduleSet{dir: dir, path: map[string]string{}, deps: map[string][]string{}, have: map[string]bool{}}
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(builtin)) {
		s.have[moduleName(strings.TrimSpace(line))] = true
	}
	b, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return s, s.scan()
	case err != nil:
		return nil, err
	}
	sc := bufio.NewScanner(bytes.NewReader(b))
	// Lines of modules.dep can exceed 64 KiB.
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		path, deps, ok := strings.Cut(sc.Text(), ":")
		if !ok {
			return nil, fmt.Errorf("%s/modules.dep: no colon in %q", dir, sc.Text())
		}
		s.path[moduleName(path)] = path
		s.deps[path] = strings.Fields(deps)
	}
	return s, sc.Err()
}

func (s *moduleSet) scan() error {
	err := filepath.WalkDir(filepath.Join(s.dir, "kernel"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(d.Name(), ".ko") {
			return err
		}
		rel, err := filepath.Rel(s.dir, path)
		if err != nil {
			return err
		}
		s.path[moduleName(rel)] = rel
		return nil
	})
	if err == nil && len(s.path) == 0 {
		err = fmt.Errorf("%s: no kernel modules", s.dir)
	}
	return err
}

// moduleName returns "crc32_pclmul" for ".../crc32-pclmul.ko.xz".
func moduleName(path string) string {
	base, _, _ := strings.Cut(filepath.Base(path), ".ko")
	return strings.ReplaceAll(base, "-", "_")
}

// load returns modules with their dependencies in insertion order, uncompressed. Names in optional may be missing from
// the kernel.
func (s *moduleSet) load(required, optional []string) ([]module, error) {
	var out []module
	seen := make(map[string]bool)
	var visit func(path string, isOptional bool) error
	visit = func(path string, isOptional bool) error {
		if seen[path] {
			return nil
		}
		seen[path] = true
		data, err := readModule(filepath.Join(s.dir, path))
		if err != nil {
			return err
		}
		deps, err := s.needs(path, data)
		if err != nil {
			return err
		}
		// modules.dep lists the nearest first
		for _, d := range slices.Backward(deps) {
			if err := visit(d, isOptional); err != nil {
				return err
			}
		}
		out = append(out, module{Name: moduleName(path), Data: data, Optional: isOptional})
		return nil
	}
	// rxe finds its checksum only if that was loaded before.
	for i, names := range [][]string{optional, required} {
		for _, name := range names {
			name = strings.ReplaceAll(name, "-", "_")
			path, ok := s.path[name]
			switch {
			case ok:
				if err := visit(path, i == 0); err != nil {
					return nil, err
				}
			case i == 1 && !s.have[name]:
				return nil, fmt.Errorf("the kernel in %s has no module %s: take another kernel", s.dir, name)
			}
		}
	}
	return out, nil
}

func (s *moduleSet) needs(path string, data []byte) ([]string, error) {
	if deps, known := s.deps[path]; known {
		return deps, nil
	}
	var deps []string
	depends := strings.Join(moduleInfo(data)["depends"], ",")
	for name := range strings.FieldsFuncSeq(depends, func(r rune) bool { return r == ',' }) {
		p, ok := s.path[strings.ReplaceAll(name, "-", "_")]
		if !ok {
			return nil, fmt.Errorf("%s needs module %s, which %s lacks", path, name, s.dir)
		}
		deps = append(deps, p)
	}
	return deps, nil
}

type module struct {
	Name     string
	Data     []byte // ELF, decompressed
	Optional bool   // crc32_pclmul needs a CPU with the instruction
}

func readModule(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil && slices.Contains([]string{".xz", ".zst", ".gz"}, filepath.Ext(path)) {
		if b, err = decompress(b); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	return b, err
}
