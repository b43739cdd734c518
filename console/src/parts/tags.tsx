export function Tags({ of }: { of: Readonly<Record<string, string>> }) {
  return (
    <>
      {Object.entries(of).map(([key, value]) => (
        <span key={key} class="tag" title={`${key}=${value}`}>
          {key}={value}
        </span>
      ))}
    </>
  );
}
