// Texts whose contrast to their ground is below 4.5 : 1 (WCAG 2.2, 1.4.3), as "element ratio text".
() => {
  const channel = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  // Colours may be half transparent: they are painted over each other, the page's first.
  const painted = (colours) => {
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const grounds = (node) => {
    const found = [];
    for (let n = node; n; n = n.parentElement) found.unshift(getComputedStyle(n).backgroundColor);
    return ["#fff", ...found];
  };
  const poor = new Set();
  for (const node of document.querySelectorAll("main *, header *, footer *, .toolbar *")) {
    const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !node.checkVisibility() || node.closest(".visually-hidden")) continue;
    const drawn = node.namespaceURI.includes("svg");
    const style = getComputedStyle(node);
    const below = grounds(drawn ? node.closest("div") : node);
    const [a, b] = [light(painted(below)), light(painted([...below, drawn ? style.fill : style.color]))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const name = `${node.tagName}.${node.className.baseVal ?? node.className}`;
    if (ratio < 4.5) poor.add(`${name} ${ratio.toFixed(2)} ${node.textContent.trim().slice(0, 30)}`);
  }
  return [...poor];
}
