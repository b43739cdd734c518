/** A browser without pages: it keeps cookies by origin, and follows redirects. */
export class HttpBrowser {
  private readonly cookies = new Map<string, Map<string, string>>();

  async request(
    address: string,
    init: { method?: string; headers?: Record<string, string>; body?: string } = {},
  ) {
    const { origin } = new URL(address);
    const jar = this.cookies.get(origin) ?? new Map<string, string>();
    const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ');
    const answer = await fetch(address, {
      ...init,
      redirect: 'manual',
      headers: { ...init.headers, ...(cookie === '' ? {} : { cookie }) },
    });
    for (const set of answer.headers.getSetCookie()) {
      const [pair = ''] = set.split(';');
      const at = pair.indexOf('=');
      const isGone = /max-age=0\b|expires=Thu, 01 Jan 1970/i.test(set);
      if (isGone) jar.delete(pair.slice(0, at));
      else jar.set(pair.slice(0, at), pair.slice(at + 1));
    }
    this.cookies.set(origin, jar);
    return answer;
  }

  /** Follows redirects until `stop` names an address, or an answer is none. */
  async follow(
    address: string,
    stop: (url: URL) => boolean = () => false,
  ): Promise<{ url: string; answer: Response | undefined }> {
    let url = address;
    for (let hops = 0; hops < 20; hops += 1) {
      if (stop(new URL(url))) return { url, answer: undefined };
      const answer = await this.request(url);
      const location = answer.headers.get('location');
      if (location === null) return { url, answer };
      url = new URL(location, url).href;
    }
    throw new Error(`too many redirects from ${address}`);
  }

  /** Sends the only form of a page. */
  async submit(url: string, fields: Record<string, string>): Promise<Response> {
    return this.request(url, {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams(fields).toString(),
    });
  }

  cookie(origin: string, name: string): string | undefined {
    return this.cookies.get(origin)?.get(name);
  }

  setCookie(origin: string, name: string, value: string): void {
    const jar = this.cookies.get(origin) ?? new Map<string, string>();
    this.cookies.set(origin, jar.set(name, value));
  }
}
