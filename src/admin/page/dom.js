// Nodes of the page: described by `h`, and brought up to date in place by `render`, so that focus and scroll positions
// stay while the data changes. Texts are set as text: nothing that a client sent is read as HTML.

const SVG = 'http://www.w3.org/2000/svg';
const SVG_TAGS = new Set(['svg', 'path', 'line', 'rect']);

/** Returns the description of an element. Children are descriptions, texts or numbers; null is left out. */
export function h(tag, attributes = {}, ...children) {
  return { tag, attributes, children: children.flat(Infinity).filter((child) => child !== null && child !== undefined) };
}

/** Makes the children of `parent` those described. */
export function render(parent, ...described) {
  const children = described.flat(Infinity).filter((child) => child !== null && child !== undefined);
  children.forEach((child, index) => {
    const node = parent.childNodes[index];
    if (node && isSame(node, child)) {
      update(node, child);
    } else if (node) {
      parent.replaceChild(create(child), node);
    } else {
      parent.append(create(child));
    }
  });
  while (parent.childNodes.length > children.length) {
    parent.lastChild.remove();
  }
}

function isSame(node, child) {
  if (typeof child !== 'object') {
    return node.nodeType === Node.TEXT_NODE;
  }
  // A button does not become that of another row under the pointer.
  return node.nodeName.toLowerCase() === child.tag && (node.dataset?.end ?? '') === (child.attributes['data-end'] ?? '');
}

function create(child) {
  if (typeof child !== 'object') {
    return document.createTextNode(child);
  }
  const node = SVG_TAGS.has(child.tag) ? document.createElementNS(SVG, child.tag) : document.createElement(child.tag);
  update(node, child);
  return node;
}

function update(node, child) {
  if (typeof child !== 'object') {
    if (node.data !== String(child)) {
      node.data = child;
    }
    return;
  }
  const wanted = Object.entries(child.attributes).filter(([, value]) => value !== null && value !== undefined && value !== false);
  for (const { name } of [...node.attributes]) {
    if (!wanted.some(([key]) => key === name)) {
      node.removeAttribute(name);
    }
  }
  for (const [key, value] of wanted) {
    if (node.getAttribute(key) !== String(value)) {
      node.setAttribute(key, value);
    }
  }
  render(node, child.children);
}
