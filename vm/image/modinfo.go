package image

import (
	"bytes"
	"debug/elf"
	"strings"
)

// moduleInfo returns the .modinfo section ("depends", "vermagic" ...) by key, repeated keys (alias, parm) in order. A
// file that is not a module has none.
func moduleInfo(ko []byte) map[string][]string {
	info := make(map[string][]string)
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return info
	}
	s := f.Section(".modinfo")
	if s == nil {
		return info
	}
	b, err := s.Data()
	if err != nil {
		return info
	}
	for rec := range strings.SplitSeq(string(b), "\x00") {
		if k, v, ok := strings.Cut(rec, "="); ok {
			info[k] = append(info[k], v)
		}
	}
	return info
}
