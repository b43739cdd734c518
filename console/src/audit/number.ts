const format = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

export const number = (amount: number) => format.format(amount);
