/**
 * A document in which `createElement('style')` gives an element that keeps its rules in a constructed sheet. xterm writes rules into
 * `<style>`, which the Content-Security-Policy of the page refuses.
 */
export function documentWithSheets(document: Document): { document: Document; dispose: () => void } {
  const sheets: CSSStyleSheet[] = [];
  const styleElement = (): HTMLElement => {
    const sheet = new CSSStyleSheet();
    sheets.push(sheet);
    document.adoptedStyleSheets.push(sheet);
    const element = document.createElement('span');
    element.hidden = true;
    return Object.defineProperty(element, 'textContent', {
      get: () => '',
      set: (rules: string) => sheet.replaceSync(rules),
    });
  };
  const createElement = (name: string) => (name === 'style' ? styleElement() : document.createElement(name));
  return {
    document: new Proxy(document, {
      get(target, name) {
        if (name === 'createElement') return createElement;
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      },
    }),
    dispose() {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => !sheets.includes(sheet));
    },
  };
}
