snippet=$root/etc/default/grub.d/$file
defaults=$root/etc/default/grub

regenerate() {
    if command -v update-grub >/dev/null 2>&1; then
        update-grub
    elif command -v grub2-mkconfig >/dev/null 2>&1; then
        grub2-mkconfig -o "$root/boot/grub2/grub.cfg"
    elif command -v grub-mkconfig >/dev/null 2>&1; then
        grub-mkconfig -o "$root/boot/grub/grub.cfg"
    else
        fail "neither update-grub nor grub2-mkconfig nor grub-mkconfig is there: is GRUB the boot loader?"
    fi
}

# reads_snippets says whether this GRUB reads /etc/default/grub.d by itself: Debian's and Ubuntu's do.
reads_snippets() {
    for program in grub-mkconfig grub2-mkconfig; do
        path=$(command -v "$program" 2>/dev/null) || continue
        ! grep -q 'default/grub\.d' "$path" || return 0
    done
    return 1
}

apply() {
    # There the entries in /boot/loader/entries have command lines of their own, which grub2-mkconfig leaves as they are.
    if command -v grubby >/dev/null 2>&1 && grep -q '^GRUB_ENABLE_BLSCFG=.*true' "$defaults" 2>/dev/null; then
        fail "this system boots by entries in /boot/loader/entries: use grubby.sh"
    fi
    fits "$(others "$(get "$root/proc/cmdline")") $args"
    mkdir -p "${snippet%/*}"
    cp "$(dirname "$0")/grub.cfg" "$snippet"
    chmod 0644 "$snippet"
    if ! reads_snippets && ! grep -qF "/etc/default/grub.d/$file" "$defaults" 2>/dev/null; then
        printf '. /etc/default/grub.d/%s # rackless\n' "$file" >>"$defaults"
    fi
    regenerate
}

undo() {
    rm -f "$snippet"
    if grep -qF "/etc/default/grub.d/$file # rackless" "$defaults" 2>/dev/null; then
        without=$(grep -vF "/etc/default/grub.d/$file # rackless" "$defaults" || :)
        printf '%s\n' "$without" >"$defaults"
    fi
    regenerate
}
