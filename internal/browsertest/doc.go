// Package browsertest opens pages in a headless Chromium in tests, and reports the result.
package browsertest
