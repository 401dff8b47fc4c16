package change

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"
)

// EchoTo returns the command that writes a value to a kernel file.
func EchoTo(path, value string) string {
	return "echo " + words.ShellWord(value) + " > " + words.ShellWord(path)
}

func writeTo(path string, data []byte, mode fs.FileMode) []string {
	content := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	end := "EOF"
	for slices.Contains(content, end) {
		end += "_"
	}
	first := fmt.Sprintf("install -D -m %04o /dev/stdin %s <<'%s'", mode.Perm(), words.ShellWord(path), end)
	return append(append([]string{first}, content...), end)
}
