package show

import "github.com/rackless/rackless/internal/words"

// Printable is [words.Printable].
func Printable(s string) string { return words.Printable(s) }

// Visible is [words.Visible].
func Visible(s string) string { return words.Visible(s) }
