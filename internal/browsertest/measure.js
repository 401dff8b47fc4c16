(() => {
  const box = e => e.getBoundingClientRect();
  const charts = [...document.querySelectorAll('svg[role=img]')].filter(e => box(e).width > 0);
  const clipped = [], overlapping = [], tiny = [];
  for (const svg of charts) {
    const outer = box(svg);
    const texts = [...svg.querySelectorAll('text')].map(t => ({t: t.textContent, b: box(t)}));
    for (const {t, b} of texts) {
      if (b.left < outer.left - 1 || b.right > outer.right + 1 || b.top < outer.top - 1 || b.bottom > outer.bottom + 1)
        clipped.push(t);
    }
    for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length; j++) {
      const a = texts[i].b, b = texts[j].b;
      // 3: the boxes of two lines of text may touch
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
          Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
        overlapping.push(texts[i].t + ' / ' + texts[j].t);
    }
    const scale = outer.width / svg.viewBox.baseVal.width;
    for (const t of svg.querySelectorAll('text'))
      if (parseFloat(getComputedStyle(t).fontSize) * scale < 9) tiny.push(t.textContent);
    for (const p of svg.querySelectorAll('path'))
      if (/NaN|Inf/.test(p.getAttribute('d'))) clipped.push('path ' + p.getAttribute('d'));
  }
  return {
    unlabelled: [...document.querySelectorAll('svg')].filter(s => !s.getAttribute('aria-labelledby').split(' ')
      .every(i => document.getElementById(i)?.textContent)).length,
    unscoped: document.querySelectorAll('th:not([scope])').length,
    banner: document.querySelector('.banner')?.textContent ?? '',
    background: getComputedStyle(document.body).backgroundColor,
    sideways: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    clipped, overlapping, tiny, charts: charts.length,
  };
})()
