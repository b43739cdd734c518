/** Keeps the browser from sending the form, and reads its texts by name. */
export function submitted(event: SubmitEvent): (name: string) => string {
  event.preventDefault();
  const form = new FormData(event.currentTarget as HTMLFormElement);
  return (name) => {
    const value = form.get(name);
    return typeof value === 'string' ? value.trim() : '';
  };
}
