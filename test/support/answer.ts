/** An answer whose body matches openapi.json. */
export interface Answer<Body = any> {
  status: number;
  headers: Headers;
  body: Body;
  text: string;
}
