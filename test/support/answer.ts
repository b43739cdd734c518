/** An answer, whose body is checked against openapi.json before a test sees it. */
export interface Answer<Body = any> {
  status: number;
  headers: Headers;
  body: Body;
  text: string;
}
