/**
 * Lets a library style elements under a Content-Security-Policy without inline styles, until the result is called.
 * Rules of new `<style>` elements become constructed sheets, and the attribute `style` of new elements becomes
 * properties. xterm writes both, and its option `documentOverride` reaches only some of the places: its viewport and
 * its rows take the global document.
 */
export function styleByScript(document: Document): () => void {
  holders += 1;
  restoreAll ??= replaceCreation(document);
  return () => {
    holders -= 1;
    if (holders > 0) return;
    restoreAll?.();
    restoreAll = undefined;
  };
}

/** Several terminals share one replacement, which the last of them takes back. */
let holders = 0;
let restoreAll: (() => void) | undefined;

function replaceCreation(document: Document): () => void {
  const sheets: CSSStyleSheet[] = [];
  const plain = document.createElement.bind(document);
  const styleElement = (): HTMLElement => {
    const sheet = new CSSStyleSheet();
    sheets.push(sheet);
    document.adoptedStyleSheets.push(sheet);
    const element = plain('span');
    element.hidden = true;
    return Object.defineProperty(element, 'textContent', {
      get: () => '',
      set(rules: string) {
        sheet.replaceSync(rules);
      },
    });
  };
  const createElement = (name: string, options?: ElementCreationOptions): HTMLElement => {
    if (name === 'style') return styleElement();
    const element = plain(name, options);
    element.setAttribute = (attribute, value) => {
      if (attribute === 'style') element.style.cssText = value;
      else Element.prototype.setAttribute.call(element, attribute, value);
    };
    return element;
  };
  Object.defineProperty(document, 'createElement', { value: createElement, configurable: true });
  return () => {
    Reflect.deleteProperty(document, 'createElement');
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => !sheets.includes(sheet));
  };
}
