"""What the card games share: cards, their pictures, and formulas of card values. No environment."""
