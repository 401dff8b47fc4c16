// Package browsertest opens pages in a headless Chromium in tests, and reports what it shows.
package browsertest
