// The parts of the page that have data-live are had anew every second, or as often as data-every says, as the server writes them, and changed where they differ: what is in focus,
// selected or scrolled stays. Nothing is asked for while the page is hidden or paused.
'use strict';
const from = document.querySelector('[data-source]')?.dataset, source = from?.source;
const button = document.getElementById('pause'), silence = document.getElementById('silence');
const second = 1000, pace = (from?.every ?? 1) * second;
let paused = false, timer = 0, busy = false;

function change(have, now) {
  if (have.isEqualNode(now)) return;
  if (have.nodeType !== now.nodeType || have.nodeName !== now.nodeName) {
    have.replaceWith(document.importNode(now, true));
    return;
  }
  if (have.nodeType !== Node.ELEMENT_NODE) {
    have.nodeValue = now.nodeValue;
    return;
  }
  const kept = name => name === 'open' && have.nodeName === 'DETAILS'; // what the reader has opened stays open
  for (const {name} of [...have.attributes]) if (!now.hasAttribute(name) && !kept(name)) have.removeAttribute(name);
  for (const {name, value} of now.attributes) if (have.getAttribute(name) !== value && !kept(name)) have.setAttribute(name, value);
  const old = [...have.childNodes], next = [...now.childNodes];
  next.forEach((child, i) => i < old.length ? change(old[i], child) : have.append(document.importNode(child, true)));
  old.slice(next.length).forEach(child => child.remove());
}

function say(text) {
  document.documentElement.classList.toggle('still', text !== '');
  if (!silence) return;
  if (silence.textContent !== text) silence.textContent = text;
  silence.hidden = text === '';
}

async function look() {
  clearTimeout(timer);
  if (busy || paused || document.hidden) return;
  busy = true;
  try {
    const answer = await fetch(source, {cache: 'no-store', signal: AbortSignal.timeout(15 * second)});
    if (!answer.ok) throw new Error(answer.status === 401 ? 'rackless ui was started anew: open the address that it has printed.' : 'rackless answers with status ' + answer.status + '.');
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    if (!paused) for (const part of document.querySelectorAll('[data-live]')) {
      const now = page.getElementById(part.id);
      if (now) change(part, now);
    }
    say('');
  } catch (e) {
    say(e.name === 'TypeError' || e.name === 'TimeoutError' ? 'rackless ui does not answer: has it ended? These figures are old.' : e.message);
  }
  busy = false;
  clearTimeout(timer);
  timer = setTimeout(look, pace);
}

if (source) {
  document.addEventListener('visibilitychange', look);
  timer = setTimeout(look, pace);
  if (button) {
    button.hidden = false;
    button.addEventListener('click', () => {
      paused = !paused;
      button.textContent = paused ? 'Go on' : 'Pause';
      look();
    });
  }
}
