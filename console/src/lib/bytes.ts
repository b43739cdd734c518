const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytes(amount: number): string {
  const power = amount < 1 ? 0 : Math.min(Math.floor(Math.log2(amount) / 10), UNITS.length - 1);
  const value = amount / 1024 ** power;
  return `${power === 0 || value >= 100 ? Math.round(value) : value.toFixed(1).replace(/\.0$/, '')} ${UNITS[power]}`;
}
